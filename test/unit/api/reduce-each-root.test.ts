/** A reduce-scatter of blocks of different lengths under NCCL's plans: one reduce for each root. */
import { type Communicator, createWorld, type ReduceOp } from "twinccl";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

/** Values of many magnitudes, so that another order or rounding shows. */
function values(comm: Communicator, length: number): Float32Array {
  return new Float32Array(length).map((_, i) => Math.sin(i * 7 + comm.rank + 1) * 10 ** (i % 9));
}

async function bitsOfBoth(
  options: SimOptions,
  counts: readonly number[],
  op: ReduceOp,
  inPlace: boolean,
) {
  const world = await createWorld({ backend: sim(options), size: counts.length });
  const found = await world.run(async (comm) => {
    const length = counts.reduce((sum, count) => sum + count, 0);
    const send = comm.alloc("float32", length).copyFrom(values(comm, length));
    const offsets = counts.map((_, rank) => counts.slice(0, rank).reduce((sum, c) => sum + c, 0));
    const block = (rank: number) =>
      send.subarray(offsets[rank], (offsets[rank] as number) + (counts[rank] as number));
    const single = comm.alloc("float32", counts[comm.rank] as number);
    for (const [root, count] of counts.entries()) {
      if (count === 0) continue;
      const recv = comm.rank === root ? { recv: single } : {};
      await comm.reduce({ send: block(root), ...recv, root, op });
    }
    const recv = inPlace ? block(comm.rank) : comm.alloc("float32", counts[comm.rank] as number);
    await comm.reduceScatterv({ send, recv, sendCounts: [...counts], op });
    return [await recv.toHost(), await single.toHost()].map(({ buffer }) => new Uint8Array(buffer));
  });
  await world.close();
  return found;
}

describe("gives the bits of a reduce to each rank", () => {
  const cases: [number[], ReduceOp][] = [
    [[5, 0, 1000], "sum"],
    [[10_000, 3, 17, 1], "avg"],
    [[0, 0, 5000, 1, 9], { preMul: 0.3 }],
    [[1], "sum"],
    [[0, 0], "sum"],
  ];
  // LL128 rounds averages by position, counted from the start of each root's own reduce.
  const protocols = [{}, { like: "nccl-2.28", plan: { protocol: "LL128" } }] as const;
  test.each(cases)("%j by %j", async (counts, op) => {
    for (const options of protocols) {
      for (const inPlace of [false, true]) {
        for (const [scattered, reduced] of await bitsOfBoth(options, counts, op, inPlace)) {
          expect(Buffer.from(scattered as Uint8Array).equals(reduced as Uint8Array)).toBe(true);
        }
      }
    }
  });
});

test("appears as one call in a trace, with the messages of all its reduces", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace }), size: 3 });
  await world.run((comm) =>
    comm.reduceScatterv({
      send: new Float32Array(6),
      recv: new Float32Array([1, 0, 5][comm.rank] as number),
      sendCounts: [1, 0, 5],
      op: "sum",
    }),
  );
  await world.close();
  const text = trace.toText();
  expect(
    text.match(/ post rank=\d comm=world call=0 reduceScatterv float32\[\d\] Ring LL per root\n/g),
  ).toHaveLength(3);
  // Two reduces round a ring of three ranks, two messages each; the second begins where the first has ended.
  const messages = [
    ...text.matchAll(/^(\d+) recv rank=(\d) from=(\d) .* elements=(\d) sent=(\d+)/gm),
  ];
  expect(messages.map(([, , to, from, elements]) => `${from}>${to} ${elements}`).sort()).toEqual(
    ["0>1 5", "1>2 1", "1>2 5", "2>0 1"].sort(),
  );
  const doneAtRoot = Math.max(...messages.map(([, done]) => Number(done)));
  expect(text).toContain(`${doneAtRoot} done rank=2`);
});

describe("explain", () => {
  const question = { collective: "reduceScatterv", dtype: "float32", op: "avg" } as const;

  test("shows the reduces, their plans and their sums", async () => {
    const world = await createWorld({ backend: sim(), size: 6 });
    const plan = world.explain({ ...question, counts: [[10, 1_100_000, 0, 3, 0, 7]] });
    const alone = world.explain({ ...question, collective: "reduce", count: 10, root: 0 });
    expect(plan).toMatchObject({ algorithm: "Ring LL, Ring Simple per root", protocol: undefined });
    expect(plan.chunks).toEqual(alone.chunks);
    expect(plan.chunkOf(9).order).toEqual([1, 2, 3, 4, 5, 0]);
    expect(plan.claim).toBe(alone.claim);
    expect(plan.claim).toMatch(/^the same bits as NCCL/);
    // Ranks 2 and 4 receive nothing, so they send something for every root.
    expect(plan.sentBytes).toBe(4 * (10 + 1_100_000 + 3 + 7));
    expect(String(plan)).toMatch(/\n {2}root 1 {2}1100000 elements {2}Ring Simple\n/);
    await world.close();
  });

  test("accepts one count for all ranks, and no count", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const plan = world.explain({ ...question, count: 4 });
    const one = world.explain({ ...question, collective: "reduce", count: 4, root: 0 });
    expect(plan).toMatchObject({ algorithm: "Ring LL per root", protocol: "LL", steps: 2 });
    expect(plan.predictedNs).toBeGreaterThan(one.predictedNs);
    expect(world.explain(question)).toMatchObject({ steps: 0, sentBytes: 0, predictedNs: 0 });
    await world.close();
  });
});
