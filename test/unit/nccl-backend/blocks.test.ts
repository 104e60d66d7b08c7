/** Exchanges of blocks are NCCL's own calls where the library has them, and sends and receives where it does not. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import type { FakeGpus } from "../../support/fake-gpus/index.ts";
import { cleanGpus, inWorld } from "./gpus.ts";

const [size, root, count] = [3, 1, 2];

/** What each rank has after an all-to-all, a gather and a scatter, twice; elements say whose and which they were. */
async function exchanges(comm: Communicator): Promise<number[][]> {
  const filled = (length: number) =>
    comm
      .alloc("int32", length)
      .copyFrom(Int32Array.from({ length }, (_, at) => 100 * (comm.rank + 1) + at));
  const isRoot = comm.rank === root;
  const all = filled(size * count);
  const own = filled(count);
  const [exchanged, scattered] = [comm.alloc("int32", size * count), comm.alloc("int32", count)];
  const gathered = comm.alloc("int32", isRoot ? size * count : 0);
  for (let again = 0; again < 2; again++) {
    await comm.allToAll({ send: all, recv: exchanged });
    await (isRoot
      ? comm.gather({ send: own, recv: gathered, root })
      : comm.gather({ send: own, root }));
    await (isRoot
      ? comm.scatter({ send: all, recv: scattered, root })
      : comm.scatter({ recv: scattered, root }));
  }
  const results = [exchanged, gathered, scattered].map((buffer) => buffer.toHost());
  return (await Promise.all(results)).map((values) => Array.from(values));
}

const expected = [
  [[100, 101, 200, 201, 300, 301], [], [200, 201]],
  [
    [102, 103, 202, 203, 302, 303],
    [100, 101, 200, 201, 300, 301],
    [202, 203],
  ],
  [[104, 105, 204, 205, 304, 305], [], [204, 205]],
];

const calls = ["allToAll", "gather", "scatter", "send", "recv"] as const;
const counted = ({ machine }: FakeGpus) => calls.map((call) => machine.count(call));

describe("exchanges of blocks", () => {
  test.each([
    ["2.28 has them", 22809, [6, 6, 6, 0, 0]],
    ["2.27 has sends and receives", 22707, [0, 0, 0, 30, 30]],
  ])("NCCL %s", async (_, ncclVersion, made) => {
    const gpus = cleanGpus({ ncclVersion });
    await inWorld(gpus, size, async (world) => {
      expect(await world.run(exchanges)).toEqual(expected);
    });
    expect(counted(gpus)).toEqual(made);
  });

  test.each([22809, 22707])("without elements make no call of NCCL %i", async (ncclVersion) => {
    const gpus = cleanGpus({ ncclVersion });
    await inWorld(gpus, size, async (world) => {
      await world.run(async (comm) => {
        const [send, recv] = [comm.alloc("float32", 0), comm.alloc("float32", 0)];
        await comm.allToAll({ send, recv });
        await (comm.rank === root
          ? comm.scatter({ send, recv, root })
          : comm.scatter({ recv, root }));
      });
    });
    expect(counted(gpus)).toEqual([0, 0, 0, 0, 0]);
  });
});
