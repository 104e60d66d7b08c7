/** A posted operation: its numbers, its states, the order of its observers, and the reports of hooks and stats. */
import type { OpInfo } from "twinccl";
import { describe, expect, test } from "vitest";
import { Operation } from "../../../src/api/op.ts";
import { inWorld } from "../../support/in-world.ts";

const pause = (milliseconds = 3): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

describe("an operation", () => {
  test("numbers its calls from 0 and changes from waiting to done", async () => {
    const results = await inWorld(2, async (comm) => {
      if (comm.rank === 1) await pause();
      const ops = [comm.barrier(), comm.barrier(), comm.barrier()];
      const before = comm.rank === 0 ? ops.map(({ status }) => status) : [];
      await Promise.all(ops);
      const after = ops.map(({ status }) => status);
      return { numbers: ops.map(({ call }) => call), before, after };
    });
    const expected = { numbers: [0, 1, 2], after: ["done", "done", "done"] };
    expect(results).toEqual([
      { ...expected, before: ["waiting", "waiting", "waiting"] },
      { ...expected, before: [] },
    ]);
  });

  test("resolves to the receiving data itself", async () => {
    await inWorld(2, async (comm) => {
      const send = comm.alloc("int8", 2);
      const recv = comm.alloc("int8", 2);
      expect(await comm.allReduce({ send, op: "sum" })).toBe(send);
      expect(await comm.allReduce({ send, recv, op: "sum" })).toBe(recv);
      expect(await comm.allToAll({ send, recv })).toBe(recv);
      const root = comm.rank === 0 ? { send } : { recv };
      expect(await comm.broadcast({ ...root, root: 0 })).toBe(comm.rank === 0 ? send : recv);
      expect(await comm.barrier()).toBeUndefined();
      const host = new Float32Array(2);
      expect(await comm.allReduce({ send: host, op: "avg" })).toBe(host);
      const result = await comm.allToAllv({ send, recv, sendCounts: [1, 1] });
      expect(result.recv).toBe(recv);
      expect(result).toMatchObject({ recvCounts: [1, 1], recvOffsets: [0, 1] });
    });
  });

  test("settles `enqueued` when every rank has made the call", async () => {
    const results = await inWorld(2, async (comm) => {
      const order: string[] = [];
      if (comm.rank === 1) await pause();
      const op = comm.barrier();
      const first = op.enqueued.then(() => order.push("enqueued"));
      expect(op.enqueued).toBe(op.enqueued);
      await op;
      await first;
      order.push("done");
      await op.enqueued;
      return order;
    });
    expect(results).toEqual([
      ["enqueued", "done"],
      ["enqueued", "done"],
    ]);
  });

  test("may be awaited many times, by then, catch and finally", async () => {
    const [results] = await inWorld(1, async (comm) => {
      const op = comm.allReduce({ send: new Int8Array(1), op: "sum" });
      let finals = 0;
      const count = (): void => void finals++;
      const [a, b, c, d] = await Promise.all([
        op,
        op.then(() => 2),
        op.catch(() => 3),
        op.finally(count),
      ]);
      expect([a, c, d].every((value) => value instanceof Int8Array)).toBe(true);
      const bad = comm.broadcast({ root: 7 });
      const codes = [
        await bad.catch((error) => (error as { code: string }).code),
        await bad.then(undefined, (error) => (error as { code: string }).code),
        await bad.finally(count).catch((error) => (error as { code: string }).code),
      ];
      return { b, finals, codes, tag: Object.prototype.toString.call(op) };
    });
    const codes = ["ERR_COMM_ARG", "ERR_COMM_ARG", "ERR_COMM_ARG"];
    expect(results).toEqual({ b: 2, finals: 2, codes, tag: "[object CommOp]" });
  });

  test("is an operation, failed from the start when its arguments are wrong", async () => {
    await inWorld(1, async (comm) => {
      const op = comm.broadcast({ root: -1 });
      expect(op).toBeInstanceOf(Operation);
      expect([op.status, op.call, op.pending]).toEqual(["failed", -1, false]);
      await expect(op.enqueued).rejects.toBe(op.error);
      await expect(op).rejects.toBe(op.error);
    });
  });

  test("runs in call order, for any order of awaits", async () => {
    const results = await inWorld(3, async (comm) => {
      const data = comm.alloc("int32", 1).fill(1);
      const ops = [1, 2, 3].map(() => comm.allReduce({ send: data, op: "sum" }));
      await ops[2];
      expect(ops.map(({ status }) => status)).toEqual(["done", "done", "done"]);
      return (await data.toHost())[0];
    });
    expect(results).toEqual([27, 27, 27]);
  });
});

describe("hooks", () => {
  test("see every operation before its posting and after it settles, until they are removed", async () => {
    const seen: string[] = [];
    await inWorld(2, async (comm) => {
      if (comm.rank === 1) {
        await comm.barrier();
        await comm.allReduce({ send: new Float64Array(3), op: "sum" });
        await comm.barrier();
        return;
      }
      const text = (info: OpInfo): string => `${info.collective} ${info.dtype} ${info.count}`;
      const off = [
        comm.hooks.before((info) => seen.push(`before ${text(info)}`)),
        comm.hooks.after((info, error) => seen.push(`after ${text(info)} ${info.call} ${error}`)),
      ];
      await comm.barrier();
      await comm.allReduce({ send: new Float64Array(3), op: "sum" });
      for (const unhook of off) unhook();
      await comm.barrier();
    });
    expect(seen).toEqual([
      "before barrier undefined 0",
      "after barrier undefined 0 0 undefined",
      "before allReduce float64 3",
      "after allReduce float64 3 1 undefined",
    ]);
  });

  test("see a failure", async () => {
    const seen: unknown[] = [];
    await inWorld(2, async (comm) => {
      comm.hooks.after((info, error) => seen.push([info.rank, (error as { code: string }).code]));
      const length = comm.rank === 0 ? 1 : 2;
      await comm.allReduce({ send: new Int8Array(length), op: "sum" }).catch(() => undefined);
    });
    expect(seen.sort()).toEqual([
      [0, "ERR_COMM_MISMATCH"],
      [1, "ERR_COMM_MISMATCH"],
    ]);
  });

  test("that throw before an operation fail it with their error", async () => {
    const results = await inWorld(1, async (comm) => {
      const off = comm.hooks.before(() => {
        throw new Error("not today");
      });
      const message = await comm.barrier().catch((error) => (error as Error).message);
      off();
      await comm.barrier();
      return message;
    });
    expect(results).toEqual(["not today"]);
  });

  test("that throw after an operation fail it with their error, on that rank alone", async () => {
    const results = await inWorld(3, async (comm) => {
      if (comm.rank === 1) {
        comm.hooks.after(() => {
          throw new Error("too late");
        });
      }
      if (comm.rank === 2) await pause();
      return comm.barrier().then(
        () => "ok",
        (error) => (error as Error).message,
      );
    });
    expect(results).toEqual(["ok", "too late", "ok"]);
  });
});

describe("stats", () => {
  test("count calls by collective, bytes of send buffers, and failures, equally on every rank", async () => {
    const results = await inWorld(3, async (comm) => {
      await comm.barrier();
      await comm.allReduce({ send: new Float32Array(5), op: "sum" });
      await comm.allReduce({ send: new Float32Array(2), op: "sum" });
      await comm.broadcast({ recv: new Int8Array(7), root: 1 });
      const length = comm.rank === 0 ? 1 : 2;
      await comm.allReduce({ send: new Int8Array(length), op: "sum" }).catch(() => undefined);
      await comm.broadcast({ root: 9 }).catch(() => undefined);
      const { calls, failures } = comm.stats();
      return { calls, failures };
    });
    const expected = { calls: { barrier: 1, allReduce: 3, broadcast: 1 }, failures: 2 };
    expect(results).toEqual([expected, expected, expected]);
  });

  test("count the bytes that a rank contributes", async () => {
    const bytes = await inWorld(2, async (comm) => {
      await comm.allReduce({ send: new Float64Array(3), op: "sum" });
      await comm.broadcast({
        recv: new Int16Array(0).length === 0 ? new Int8Array(7) : new Int8Array(0),
        root: 1,
      });
      return comm.stats().sendBytes;
    });
    expect(bytes).toEqual([24, 31]);
  });
});
