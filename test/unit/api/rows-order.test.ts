/** Repeated calls of several communicators: each takes effect behind the earlier calls of its rank. */
import { type CommOp, type Communicator, DeadlockError } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";
import { cleanGpus } from "../backends/nccl/gpus.ts";

const backends = [
  ["on the simulation", () => sim()],
  [
    "on the simulation with an executor of promises",
    () => {
      const now = cpu();
      return sim({ executor: { ...now, execute: async (call) => now.execute(call) } });
    },
  ],
  ["on fake GPUs", () => cleanGpus().backend()],
] as const;

/** Makes rank 2 come behind the others by some microtasks. */
async function comesLate({ rank }: Communicator): Promise<void> {
  if (rank === 2) for (let hop = 0; hop < 40; hop++) await null;
}

describe.each(backends)("repeated calls of several communicators %s", (_, open) => {
  test.each([0, 2])("keep their order, %i microtasks apart", async (apart) => {
    const left = await inWorld(
      3,
      async (comm) => {
        const half = await comm.split({ color: comm.rank < 2 ? 0 : 1 });
        const [a, b] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1)];
        const calls = [
          () => comm.allReduce({ send: a, recv: b, op: "sum" }),
          () => half.allReduce({ send: b, op: "sum" }),
        ] as const;
        for (let step = 0; step < 3; step++) for (const call of calls) await call();
        await comm.barrier();
        a.fill(10);
        await comesLate(comm);
        const first = calls[0]();
        for (let hop = 0; hop < apart; hop++) await null;
        const second = calls[1]();
        await first;
        await second;
        return (await b.toHost())[0];
      },
      open(),
    );
    expect(left).toEqual([60, 60, 30]);
  });

  test("cause no deadlock where a rank comes late", async () => {
    const left = await inWorld(
      3,
      async (comm) => {
        const half = await comm.split({ color: comm.rank < 2 ? 0 : 1 });
        const [a, b] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1).fill(1)];
        const [onAll, onHalf] = [
          () => comm.allReduce({ send: a, op: "sum" }),
          () => half.allReduce({ send: b, op: "sum" }),
        ];
        for (let step = 0; step < 2; step++) {
          await onAll();
          await onHalf();
        }
        await comm.barrier();
        await comesLate(comm);
        const first = onAll();
        await null;
        await null;
        const second = onHalf();
        await first;
        await second;
        await comm.barrier();
        return [(await a.toHost())[0], (await b.toHost())[0]];
      },
      open(),
    );
    expect(left).toEqual([
      [27, 8],
      [27, 8],
      [27, 1],
    ]);
  });

  test("are an error in different orders", async () => {
    const ended = inWorld(
      2,
      async (comm) => {
        const other = await comm.split({ color: 0 });
        const [a, b] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1).fill(1)];
        const calls = [
          () => comm.allReduce({ send: a, op: "sum" }),
          () => other.allReduce({ send: b, op: "sum" }),
        ];
        for (let step = 0; step < 3; step++) for (const call of calls) await call();
        if (comm.rank === 1) calls.reverse();
        await Promise.all(calls.map((call) => call()));
      },
      open(),
    );
    await expect(ended).rejects.toThrow(/different orders/);
  });

  test.each([["all, own"], ["own, all, own"]])(
    "keep their order beside one of a single rank: %s",
    async (order) => {
      const left = await inWorld(
        2,
        async (comm) => {
          const own = await comm.split({ color: comm.rank });
          const buffer = () => comm.alloc("int32", 1).fill(1);
          const [a, b, c] = [buffer(), buffer(), buffer()];
          const calls: Record<string, () => CommOp> = {
            all: () => comm.allReduce({ send: a, recv: b, op: "sum" }),
            own: () => own.allReduce({ send: b, recv: c, op: "sum" }),
          };
          for (let step = 0; step < 3; step++)
            for (const call of Object.values(calls)) await call();
          await comm.barrier();
          a.fill(10);
          const ops = order.split(", ").map((name) => calls[name]?.());
          for (const op of ops) await op;
          return (await c.toHost())[0];
        },
        open(),
      );
      expect(left).toEqual([20, 20]);
    },
  );

  test("are a deadlock where a rank makes fewer and none is awaited", async () => {
    const ops: CommOp[] = [];
    const ended = inWorld(
      2,
      async (comm) => {
        const send = comm.alloc("int32", 1).fill(1);
        const call = () => comm.allReduce({ send, op: "sum" });
        for (let step = 0; step < 3; step++) await call();
        if (comm.rank === 0) ops.push(call());
      },
      open(),
    );
    await expect(ended).rejects.toMatchObject({ cause: expect.any(DeadlockError) });
    expect(ops[0]?.status).toBe("failed");
  });
});
