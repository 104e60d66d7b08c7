/**
 * Defects of three earlier systems with collectives, shown right: each test is one case that one of them failed.
 *
 * Numbers are those of the list of cases that these tests go through; `training.test.ts` has the others.
 */
import { CollectiveMismatchError, createWorld, type World, WorldError } from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, expect, test } from "vitest";

const worlds: World[] = [];
afterEach(async () => {
  for (const world of worlds.splice(0)) await world.close();
});

async function open(size: number, seed = 0): Promise<World> {
  const world = await createWorld({ backend: sim({ seed }), size });
  worlds.push(world);
  return world;
}

test("case 1: many concurrent all-reduces of equal size on one group give as many right answers", async () => {
  // Sixteen equal buckets under way at once gave wrong sums, silently, in every trial.
  for (let seed = 0; seed < 20; seed++) {
    const world = await open(4, seed);
    const results = await world.run(async (comm) => {
      const ops = Array.from({ length: 16 }, (_, bucket) =>
        comm.allReduce({
          send: Float64Array.from({ length: 33 }, (_, at) => 1000 * bucket + 10 * comm.rank + at),
          op: "sum",
        }),
      );
      return Promise.all(ops.toReversed());
    });
    for (const sums of results) {
      for (const [at, sum] of sums.entries()) {
        const bucket = 15 - at;
        expect([...sum]).toEqual(
          Array.from({ length: 33 }, (_, place) => 4 * (1000 * bucket + place) + 60),
        );
      }
    }
  }
});

test("case 3: three ranks exchange with every other one, in both forms", async () => {
  // Over a star of connections, all-to-all worked on two ranks only.
  const world = await open(3);
  const results = await world.run(async (comm) => {
    const send = Int32Array.from({ length: 6 }, (_, at) => 100 * comm.rank + at);
    const recv = await comm.allToAll({ send, recv: new Int32Array(6) });
    // To rank r go r + 1 elements.
    const varied = await comm.allToAllv({ send, sendCounts: [1, 2, 3], recv: new Int32Array(9) });
    return { recv: [...recv], counts: varied.recvCounts, varied: [...varied.recv] };
  });
  for (const [rank, { recv, counts, varied }] of results.entries()) {
    const blocks = [0, 1, 2];
    expect(recv).toEqual(
      blocks.flatMap((from) => [100 * from + 2 * rank, 100 * from + 2 * rank + 1]),
    );
    expect(counts).toEqual(blocks.map(() => rank + 1));
    const begin = [0, 1, 3][rank]!;
    const sent = blocks.flatMap((from) =>
      Array.from({ length: rank + 1 }, (_, at) => 100 * from + begin + at),
    );
    expect(varied.slice(0, sent.length)).toEqual(sent);
  }
});

test("case 4: partial outputs of unequal length are refused on all ranks, not padded", async () => {
  // Missing elements were taken for zeros, and the sum of outputs of different length returned.
  const world = await open(3);
  const outputs = [new Float32Array(8), new Float32Array(7), new Float32Array(8)].map((each) =>
    each.fill(1),
  );
  const error = await world
    .run(async (comm) => {
      await comm.allReduce({ send: outputs[comm.rank]!, op: "sum" });
    })
    .catch((thrown: unknown) => thrown as WorldError);
  expect(error).toBeInstanceOf(WorldError);
  const { failures } = error as WorldError;
  expect(failures).toHaveLength(3);
  for (const each of failures) {
    expect(each.error).toBeInstanceOf(CollectiveMismatchError);
    expect(each.error).toMatchObject({ field: "count", ranks: [1], values: ["8", "7", "8"] });
  }
  expect(outputs.every((output) => output.every((each) => each === 1))).toBe(true);
});

test("case 9: a barrier holds every rank until the last one has entered", async () => {
  // A barrier of no elements is none: the library drops it.
  const world = await open(5, 3);
  const events: string[] = [];
  await world.run(async (comm) => {
    // The later ranks come later by many turns of the event loop.
    for (let turn = 0; turn < 40 * comm.rank; turn++) await Promise.resolve();
    for (let round = 0; round < 3; round++) {
      events.push(`${round} enters`);
      await comm.barrier();
      events.push(`${round} leaves`);
      for (let turn = 0; turn < 30 * (4 - comm.rank); turn++) await Promise.resolve();
    }
  });
  for (let round = 0; round < 3; round++) {
    const lastIn = events.lastIndexOf(`${round} enters`);
    expect(events.indexOf(`${round} leaves`)).toBeGreaterThan(lastIn);
    expect(events.filter((each) => each === `${round} leaves`)).toHaveLength(5);
  }
});

test("case 10: odd sizes are split and reassembled exactly, on any number of ranks", async () => {
  // Lengths that ranks do not divide ended the process.
  for (const size of [2, 3, 5, 8]) {
    const world = await open(size);
    for (const length of [1, 7, 29, 64]) {
      const counts = Array.from(
        { length: size },
        (_, rank) => Math.floor((length * (rank + 1)) / size) - Math.floor((length * rank) / size),
      );
      const results = await world.run(async (comm) => {
        const whole = Float64Array.from({ length }, (_, at) => (at + 1) * (comm.rank + 1));
        const shard = new Float64Array(counts[comm.rank]!);
        await comm.reduceScatterv({ send: whole, recv: shard, sendCounts: counts, op: "sum" });
        const recv = new Float64Array(length);
        return [...(await comm.allGatherv({ send: shard, recv, recvCounts: counts }))];
      });
      const ranks = (size * (size + 1)) / 2;
      for (const whole of results) {
        expect(whole).toEqual(Array.from({ length }, (_, at) => (at + 1) * ranks));
      }
    }
  }
});
