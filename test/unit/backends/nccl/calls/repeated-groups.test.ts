/** Groups of calls that are made again: they take the short way of calls that are made one by one. */
import { getEventListeners } from "node:events";
import type { CallOptions, CommError, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { seen } from "../gpus.ts";
import { doubling, outcome, type Watched, watch } from "./watched-world.ts";

/** Two buffers, and a group of calls with them. */
function grouped(comm: Communicator, options: CallOptions = {}) {
  const [a, b] = [doubling(comm), doubling(comm)];
  const calls: CommOp[] = [];
  const group = (): CommOp<void> =>
    comm.group(() => {
      calls.splice(0);
      calls.push(comm.allReduce({ ...a, ...options }));
      calls.push(comm.broadcast({ recv: b.send, root: 0 }));
      calls.push(comm.allReduce({ ...a, ...options }));
      calls.push(comm.allReduce(b));
    });
  return { a: a.send, b: b.send, calls, group };
}

/** A group of one call with each of some buffers. */
function reduceAll(comm: Communicator, all: readonly ReturnType<typeof doubling>[]): CommOp<void> {
  return comm.group(() => {
    for (const each of all) void comm.allReduce(each);
  });
}

/** The numbers of repeated calls that the session got by themselves, and behind others. */
function counts({ repeats }: Watched): () => readonly [number, number] {
  return () => repeats.count();
}

describe.each([1, 3])("groups that %i ranks of one process repeat", (size) => {
  test("are one batch, in their order, and resolve as one operation", async () => {
    await watch(size, async (watched) => {
      const count = counts(watched);
      await watched.world.run(async (comm) => {
        const { a, b, calls, group } = grouped(comm);
        // What is kept of a buffer is its last call: here each makes two in turn.
        for (let i = 0; i < 3; i++) await group();
        await comm.barrier();
        if (comm.rank === 0) count();
        await comm.allReduce({ send: b, op: "max" });
        const whole = group();
        expect(whole.pending).toBe(true);
        await whole;
        expect(calls.map(({ status }) => status)).toEqual(new Array(4).fill("done"));
        expect(calls.map(({ call }) => call)).toEqual([14, 15, 16, 17]);
        expect((await a.toHost())[0]).toBe(size ** 8);
        expect((await b.toHost())[0]).toBe(size ** 4);
      });
      const [alone, behind] = count();
      expect(alone + behind).toBeGreaterThan(0);
      await expectHealthy(watched.world);
    });
  });

  test("submit every call behind the first where each has its own buffer", async () => {
    await watch(size, async (watched) => {
      const count = counts(watched);
      await watched.world.run(async (comm) => {
        const all = Array.from({ length: 5 }, () => doubling(comm));
        const group = () => reduceAll(comm, all);
        for (let i = 0; i < 2; i++) await group();
        await comm.barrier();
        if (comm.rank === 0) count();
        await group();
        for (const { send } of all) expect((await send.toHost())[0]).toBe(size ** 3);
      });
      expect(count()).toEqual([1, 4]);
    });
  });

  test("nested or consecutive, are one batch as well", async () => {
    await watch(size, async (watched) => {
      const count = counts(watched);
      await watched.world.run(async (comm) => {
        const [a, b] = [doubling(comm), doubling(comm)];
        const nested = () =>
          comm.group(() => {
            void comm.allReduce(a);
            void comm.group(() => void comm.allReduce(b));
          });
        for (let i = 0; i < 2; i++) await nested();
        await comm.barrier();
        if (comm.rank === 0) count();
        await Promise.all([nested(), comm.allReduce(a), nested()]);
        expect((await a.send.toHost())[0]).toBe(size ** 5);
        expect((await b.send.toHost())[0]).toBe(size ** 4);
      });
      expect(count()).toEqual([1, 4]);
    });
  });

  test("are not batched with a buffer that was disposed in the callback", async () => {
    await watch(size, async ({ world }) => {
      const codes = await world.run(async (comm) => {
        const [a, b] = [doubling(comm), doubling(comm)];
        for (let i = 0; i < 2; i++) await Promise.all([comm.allReduce(a), comm.allReduce(b)]);
        const found: string[] = [];
        const whole = comm.group(() => {
          void comm.allReduce(a);
          comm.allReduce(b).then(
            () => found.push("done"),
            (error: unknown) => found.push((error as CommError).code),
          );
          b.send.dispose();
        });
        found.push(await outcome(whole));
        await comm.allReduce(a);
        return found.join();
      });
      expect(new Set(codes)).toEqual(new Set(["ERR_COMM_CLOSED,ERR_COMM_CLOSED"]));
      await expectHealthy(world);
    });
  });

  test("fail with the first of their calls that fails", async () => {
    await watch(size, async ({ gpus, world }) => {
      const planned = ncclError("ncclAllReduce", 5, "ncclInvalidUsage");
      await world.run(async (comm) => {
        const all = Array.from({ length: 3 }, () => doubling(comm));
        const group = () => reduceAll(comm, all);
        for (let i = 0; i < 2; i++) await group();
        await comm.barrier();
        if (comm.rank === 0) gpus.machine.failNext("allReduce", planned, size);
        const error = await group().catch((reason) => reason);
        expect(error).toEqual(seen(planned, { rank: comm.rank, call: 8 }));
        await group();
        const found = await Promise.all(all.map(({ send }) => send.toHost()));
        expect(found.map(([value]) => value)).toEqual([size ** 4, size ** 3, size ** 4]);
      });
      await expectHealthy(world);
    });
  });

  test("with a signal can be cancelled, and with hooks are reported", async () => {
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const args = doubling(comm);
        const group = (options: CallOptions = {}) =>
          comm.group(() => void comm.allReduce({ ...args, ...options }));
        for (let i = 0; i < 2; i++) await group();
        const { signal } = new AbortController();
        gpus.machine.hold();
        const cancellable = group({ signal });
        expect(getEventListeners(signal, "abort")).toHaveLength(1);
        gpus.machine.release();
        await cancellable;
        const heard: string[] = [];
        const unhook = comm.hooks.before(({ collective }) => heard.push(collective));
        await group();
        expect(heard).toEqual(["allReduce"]);
        unhook();
        await group({ timeoutMs: 5000 });
        expect((await args.send.toHost())[0]).toBe(size ** 5);
      });
      await expectHealthy(world);
    });
  });

  test("have the deadlines of their calls", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const args = doubling(comm);
        const group = (timeoutMs: number) =>
          comm.group(() => {
            void comm.allReduce({ ...args, timeoutMs });
            void comm.allReduce({ ...args, timeoutMs });
          });
        for (let i = 0; i < 2; i++) await group(5000);
        await comm.barrier();
        gpus.machine.hold();
        return outcome(group(60));
      });
      const [first, ...others] = codes;
      expect(first).toBe("ERR_COMM_TIMEOUT");
      expect(others).toEqual(others.map(() => "ERR_COMM_ABORTED"));
      gpus.machine.release();
    });
  });
});
