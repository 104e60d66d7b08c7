/** Algorithms that a caller wrote: they run as those of the catalogue do once they are verified, and not before. */
import { type CommError, type Communicator, createWorld } from "twinccl";
import { type Algorithm, catalogue, input, output } from "twinccl/algorithms";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

/** Folds up the line of ranks, then hands the result back down. */
const line: Algorithm = {
  name: "line",
  summary: "folds up the line of ranks, then hands the result back down",
  source: "this test",
  chunksPerBlock: () => 1,
  credits: () => 0,
  cost: ({ ranks, count }) => ({
    steps: 2 * (ranks - 1),
    sentElements: Math.min(ranks - 1, 2) * count,
  }),
  order: (folds, { ranks }) => {
    let folded = folds.own(0);
    for (let rank = 1; rank < ranks; rank++) folded = folds.into(folded, rank);
    return folded;
  },
  write: (program) => {
    const last = program.ranks - 1;
    program.everyRank((lane, rank) => {
      const [below, above] = [rank - 1, rank + 1];
      if (last === 0) lane.copy(input(0), output(0), { final: true });
      else if (rank === 0) lane.send(input(0), above).recv(above, output(0));
      else if (rank === last) {
        lane.recvReduceCopySend(below, input(0), output(0), below, { final: true });
      } else {
        lane.recvReduceSend(below, input(0), above).recvCopySend(above, output(0), below);
      }
    });
  },
};

async function inWorld<T>(
  size: number,
  options: SimOptions,
  job: (comm: Communicator) => Promise<T>,
): Promise<T[]> {
  const world = await createWorld({ backend: sim(options), size });
  try {
    return await world.run(job);
  } finally {
    await world.close();
  }
}

describe("an algorithm of one's own", () => {
  test.each([1, 2, 3, 7, 12])("folds on %i ranks in the order that it states", async (size) => {
    // Values of which every order of folding leaves other bits.
    const value = (rank: number): number => Math.fround(10 ** (rank % 5) / 3);
    let expected = value(0);
    for (let rank = 1; rank < size; rank++) expected = Math.fround(expected + value(rank));
    const sums = await inWorld(size, { algorithms: { allReduce: line } }, async (comm) => {
      const send = comm.alloc("float32", 5).fill(value(comm.rank));
      await comm.allReduce({ send, op: "sum" });
      return [...(await send.toHost())];
    });
    expect(sums).toEqual(Array.from({ length: size }, () => new Array(5).fill(expected)));
  });

  test("is explained, timed and used by splits as well", async () => {
    const explained = await inWorld(4, { algorithms: { allReduce: line } }, async (comm) => {
      const half = await comm.split({ color: comm.rank % 2 });
      const send = half.alloc("int32", 1).fill(comm.rank);
      await half.allReduce({ send, op: "sum" });
      const call = { collective: "allReduce", dtype: "float32", count: 4, op: "sum" } as const;
      const { algorithm, claim } = comm.explain(call);
      return { sum: (await send.toHost())[0], algorithm, claim };
    });
    expect(explained.map(({ sum }) => sum)).toEqual([2, 4, 2, 4]);
    expect(explained[0]).toMatchObject({
      algorithm: "line",
      claim: expect.stringContaining("its algorithm is the caller's own"),
    });
  });
});

test("a trace names it, and claims nothing about its bits", async () => {
  const trace = new Trace();
  await inWorld(2, { trace, algorithms: { allReduce: line } }, (comm) =>
    comm.allReduce({ send: Float32Array.of(1), op: "sum" }),
  );
  expect(trace.toText().match(/ allReduce float32\[1\] line unclaimed\n/g)).toHaveLength(4);
});

describe("an algorithm that is not sound", () => {
  /** The error of a rank, and the result of a call by another algorithm after it. */
  const outcomesWith = (size: number, allReduce: Algorithm) =>
    inWorld(size, { algorithms: { allReduce } }, async (comm) => {
      const send = comm.alloc("int32", size).fill(comm.rank + 1);
      const call = async (): Promise<unknown> => comm.allReduce({ send, op: "sum" });
      const error = (await call().catch((caught: unknown) => caught)) as CommError | undefined;
      const next = comm.alloc("int32", 1).fill(comm.rank + 1);
      await comm.reduce({ send: next, op: "sum", root: 0 });
      return { error, next: (await next.toHost())[0] };
    });

  test.each<[what: string, pass: RegExp, algorithm: Algorithm]>([
    ["that deadlocks", /deadlock {2}/, { ...catalogue.allReduce.ring, credits: () => 0 }],
    ["whose order is another", /association {2}/, { ...line, order: (folds) => folds.own(0) }],
    [
      "that forgets a rank",
      /contribution {2}/,
      { ...line, write: (program) => program.everyRank((lane) => lane.copy(input(0), output(0))) },
    ],
  ])("%s is refused on every rank, and all continue", async (_, pass, algorithm) => {
    for (const [rank, { error, next }] of (await outcomesWith(3, algorithm)).entries()) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "algorithms.allReduce" });
      expect(error?.message).toMatch(new RegExp(`"${algorithm.name}" is not sound on 3 ranks`));
      expect(error?.message).toMatch(pass);
      expect(next).toBe([6, 2, 3][rank]);
    }
  });

  test("is reported with its error", async () => {
    const thrown = new Error("three is too many");
    const write: Algorithm["write"] = (program) => {
      if (program.ranks === 3) throw thrown;
      line.write(program);
    };
    const [{ error } = {}] = await outcomesWith(3, { ...line, write });
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "algorithms.allReduce" });
    expect(error?.message).toContain('"line" cannot be written for 3 ranks: three is too many');
    const [{ error: none } = { error: "no rank" }] = await outcomesWith(2, { ...line, write });
    expect(none).not.toBeInstanceOf(Error);
  });
});

test.each<[what: string, says: string, change: Partial<Algorithm>]>([
  [
    "a step",
    "step 0 of rank 1: to: found undefined, needs an integer of 32 bits",
    { write: (program) => program.lane(1).send(input(0), undefined as unknown as number) },
  ],
  ["a chunk", "input: chunk: found -1", { write: (program) => program.lane(1).send(input(-1), 0) }],
  ["a number of chunks", "algorithm: chunksPerBlock: found 0", { chunksPerBlock: () => 0 }],
])("one with %s that does not exist is refused by its name", async (_, says, change) => {
  const algorithms = { allReduce: { ...line, ...change } };
  const failed = inWorld(2, { algorithms }, (comm) =>
    comm.allReduce({ send: Float32Array.of(1), op: "sum" }),
  );
  await expect(failed).rejects.toThrow(
    `sim: algorithms.allReduce: "line" cannot be written for 2 ranks: ${says}`,
  );
});

test.each<[lacks: string, found: object]>([
  ["name", { ...line, name: undefined }],
  ["write", { ...line, write: "send" }],
  ["order", { ...line, order: undefined }],
  ["name", []],
])("an object without a %s is refused as an algorithm", (lacks, found) => {
  const make = () => sim({ algorithms: { allReduce: found as Algorithm } });
  expect(make).toThrow(new RegExp(`sim: algorithms\\.allReduce\\.${lacks}: found`));
});

test("one with a program that is too large to be verified is refused by the limit", async () => {
  const backend = sim({ algorithms: { allReduce: line } });
  const world = await createWorld({ backend, size: 9000 });
  const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 } as const;
  const explained = world.explain(call);
  expect(explained.steps).toBe(2 * 8999);
  expect(() => explained.chunks).toThrow(
    "allReduce by line on 9000 ranks: a program of 1 lanes a rank, which are verified up to 8,192",
  );
  await world.close();
});
