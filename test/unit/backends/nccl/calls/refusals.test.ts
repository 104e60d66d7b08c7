/** Features that the present NCCL or GPUs lack are refused by name before anything is issued. */
import type { Communicator, DType, ReduceOp } from "twinccl";
import { describe, expect, test } from "vitest";
import { cleanGpus, inWorld } from "../gpus.ts";
import { closeAll, joinAll, onAll } from "../job/joined.ts";

describe.each([
  {
    what: "an NCCL without float8",
    machine: { ncclVersion: 22304 },
    reason: /NCCL has float8e4m3 since 2\.24/,
    messages: true,
  },
  {
    what: "GPUs without float8",
    machine: { capability: "8.0" },
    reason: /float8e4m3 needs GPUs of compute capability 9\.0 or newer, found 8\.0/,
    // They are bytes to NCCL.
    messages: false,
  },
])("$what", ({ machine, reason, messages }) => {
  test("refuses every call with it, and makes the others", async () => {
    const gpus = cleanGpus(machine);
    const dtype: DType = "float8e4m3";
    await inWorld(gpus, 2, async (world) => {
      const issued = (): number =>
        ["allReduce", "broadcast", "send", "recv", "preMulSum", "group"]
          .map((name) => gpus.machine.count(name))
          .reduce((sum, count) => sum + count);
      const before = issued();
      await world.run(async (comm) => {
        const send = comm.alloc(dtype, 4);
        const ops: readonly ReduceOp[] = ["sum", "max", "avg", { preMul: 2 }];
        const calls = [
          ...ops.map((op) => () => comm.allReduce({ send, op })),
          () => comm.broadcast({ recv: send, root: 0 }),
          ...(messages ? [() => comm.send({ send, peer: 1 - comm.rank })] : []),
          () => comm.group(() => void comm.allReduce({ send, op: "sum" })),
          () => comm.capture(() => void comm.allReduce({ send, op: "sum" })),
        ];
        for (const call of calls) {
          await expect(call()).rejects.toMatchObject({
            code: "ERR_COMM_UNSUPPORTED",
            rank: comm.rank,
            message: expect.stringMatching(reason),
          });
        }
        expect(comm.supports({ collective: "allReduce", dtype, op: "sum", count: 4 })).toBe(false);
        expect(comm.supports({ collective: "sendRecv", dtype, count: 4 })).toBe(!messages);
      });
      expect(issued()).toBe(before);
      if (!messages) {
        const moved = await world.run(async (comm) => {
          const [send, recv] = [comm.alloc(dtype, 1).fill(comm.rank + 1), comm.alloc(dtype, 1)];
          await comm.sendRecv({ send, recv, to: 1 - comm.rank, from: 1 - comm.rank });
          return (await recv.toHost())[0];
        });
        expect(moved).toEqual([0x40, 0x38]);
      }
      const sums = await world.run(async (comm) => {
        const one = comm.alloc("bfloat16", 1).fill(1);
        await comm.allReduce({ send: one, op: "sum" });
        return (await one.toHost())[0];
      });
      expect(sums).toEqual([0x4000, 0x4000]);
    });
  });
});

describe("float8 on GPUs of which one lacks it", () => {
  const mixedGpus = () => {
    const gpus = cleanGpus();
    const { cuda } = gpus.setup.libraries;
    cuda.computeCapability = (device) => (device === 1 ? "8.9" : "9.0");
    return gpus;
  };
  /** Every rank is refused; those of a split without that GPU are not. */
  const tryFloat8 = async (comm: Communicator): Promise<unknown> => {
    const reduce = (on: Communicator): PromiseLike<unknown> =>
      on.allReduce({ send: on.alloc("float8e4m3", 4), op: "sum" });
    await expect(reduce(comm)).rejects.toMatchObject({
      code: "ERR_COMM_UNSUPPORTED",
      rank: comm.rank,
      message: expect.stringMatching(/needs GPUs of compute capability 9\.0 or newer, found 8\.9/),
    });
    const split = await comm.split({ color: comm.rank % 2 });
    const refused = await Promise.resolve(reduce(split)).then(
      () => false,
      () => true,
    );
    await split.close();
    return refused;
  };
  const refused = [false, true, false];

  test("is refused on every rank of a world", async () => {
    const found = await inWorld(mixedGpus(), 3, (world) => world.run(tryFloat8));
    expect(found).toEqual(refused);
  });

  test("is refused on every rank of a job", async () => {
    const ranks = await joinAll(3, undefined, mixedGpus());
    expect(await onAll(ranks, ({ comm }) => tryFloat8(comm))).toEqual(refused);
    await closeAll(ranks);
  });
});
