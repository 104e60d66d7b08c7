/** Recorded messages: as many on each rank as it has, on every backend. */
import { CollectiveMismatchError, type Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { inWorld } from "../support/in-world.ts";
import { cleanGpus, inWorld as onGpus } from "../unit/backends/nccl/gpus.ts";
import { closeAll, joinAll, onAll } from "../unit/backends/nccl/job/joined.ts";

const ROUNDS = 3;

/**
 * Three stages of a pipeline: the ends have two messages, the middle four. The sum of all is the second call of the ends and the
 * third of the middle.
 */
async function pipeline(comm: Communicator, isReplayed: boolean): Promise<number[]> {
  const { rank, size } = comm;
  const there = comm.alloc("int32", 2);
  const back = comm.alloc("int32", 2);
  const sum = comm.alloc("int32", 1);
  const [isFirst, isLast] = [rank === 0, rank === size - 1];
  const calls = (): void => {
    if (!isFirst) void comm.recv({ recv: there, peer: rank - 1 });
    if (!isLast) void comm.send({ send: there, peer: rank + 1 });
    void comm.allReduce({ send: sum, op: "sum" });
    if (!isLast) void comm.recv({ recv: back, peer: rank + 1 });
    if (!isFirst) void comm.send({ send: isLast ? there : back, peer: rank - 1 });
  };
  const graph = isReplayed ? await comm.capture(calls) : undefined;
  const results: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    if (isFirst) there.fill(10 + round);
    sum.fill(rank + round);
    if (graph === undefined) calls();
    else await graph.replay();
    for (const buffer of [there, back, sum]) results.push(...(await buffer.toHost()));
  }
  graph?.dispose();
  for (const buffer of [there, back, sum]) buffer.dispose();
  return results;
}

const expected = (rank: number): number[] =>
  Array.from({ length: ROUNDS }, (_, round) => {
    const value = 10 + round;
    // The last stage sends back what it got.
    const back = rank === 2 ? 0 : value;
    return [value, value, back, back, 3 + 3 * round];
  }).flat();

describe("a capture of a pipeline's stages was refused, since their numbers of messages differ", () => {
  test("on the simulation", async () => {
    for (const isReplayed of [true, false]) {
      const results = await inWorld(3, (comm) => pipeline(comm, isReplayed));
      expect(results).toEqual([0, 1, 2].map(expected));
    }
  });

  test("on GPUs in one process", async () => {
    const results = await onGpus(cleanGpus(), 3, (world) =>
      world.run((comm) => pipeline(comm, true)),
    );
    expect(results).toEqual([0, 1, 2].map(expected));
  });

  test("on GPUs with a process for each rank, calls compared", async () => {
    const joined = await joinAll(3, "always");
    const results = await onAll(joined, ({ comm }) => pipeline(comm, true));
    expect(results).toEqual([0, 1, 2].map(expected));
    await closeAll(joined);
  });
});

test("a capture is refused on all ranks when only some of them record messages", async () => {
  const fields = await inWorld(3, async (comm) => {
    const data = comm.alloc("int32", 1);
    const capturing = comm.capture(() => {
      void comm.barrier();
      if (comm.rank === 0) void comm.send({ send: data, peer: 1 });
      if (comm.rank === 1) void comm.recv({ recv: data, peer: 0 });
    });
    const error = await capturing.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(CollectiveMismatchError);
    return [(error as CollectiveMismatchError).field, (error as CollectiveMismatchError).ranks];
  });
  expect(fields).toEqual([0, 1, 2].map(() => ["messages", [2]]));
});
