/** Exchanges of blocks: an all-to-all is NCCL's own call where the library has it, all others are sends and receives. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { cleanGpus, inWorld } from "../gpus.ts";

const [size, root, count] = [3, 1, 2];

/** The memory of each rank after an all-to-all, a gather and a scatter, twice; elements encode their origin. */
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

const calls = ["alltoAll", "send", "recv"] as const;
const counted = ({ machine }: FakeGpus) => calls.map((call) => machine.count(call));

describe("exchanges of blocks", () => {
  test.each([
    ["2.28 has an all-to-all", 22809, [6, 12, 12]],
    ["2.27 has none", 22707, [0, 30, 30]],
  ])("NCCL %s", async (_, ncclVersion, made) => {
    const gpus = cleanGpus({ ncclVersion });
    await inWorld(gpus, size, async (world) => {
      expect(await world.run(exchanges)).toEqual(expected);
    });
    expect(counted(gpus)).toEqual(made);
  });

  test.each([
    ["of different lengths", [1, 3, 2], [0, 1, 4]],
    ["of which the root has none", [1, 0, 2], [0, 1, 1]],
    ["of one length, the last ones first", [2, 2, 2], [4, 2, 0]],
    ["of one length, apart from each other", [2, 2, 2], [0, 3, 6]],
  ])("%s lie where the root expects them", async (_, counts, offsets) => {
    for (const ncclVersion of [22809, 22707]) {
      const gpus = cleanGpus({ ncclVersion });
      await inWorld(gpus, size, async (world) => {
        const there = await world.run(async (comm) => {
          const length = counts[comm.rank] as number;
          const own = comm.alloc("int32", length).fill(comm.rank + 1);
          const back = comm.alloc("int32", length);
          const whole = comm.alloc("int32", 8);
          const isRoot = comm.rank === root;
          await (isRoot
            ? comm.gather({
                send: own,
                recv: whole,
                root,
                recvCounts: counts,
                recvOffsets: offsets,
              })
            : comm.gather({ send: own, root }));
          await (isRoot
            ? comm.scatter({
                send: whole,
                recv: back,
                root,
                sendCounts: counts,
                sendOffsets: offsets,
              })
            : comm.scatter({ recv: back, root }));
          expect(Array.from(await back.toHost())).toEqual(new Array(length).fill(comm.rank + 1));
          return Array.from(await whole.toHost());
        });
        const expected = new Array<number>(8).fill(0);
        for (const [rank, at] of offsets.entries()) {
          expected.fill(rank + 1, at, at + (counts[rank] as number));
        }
        expect(there[root]).toEqual(expected);
      });
    }
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
    expect(counted(gpus)).toEqual([0, 0, 0]);
  });
});
