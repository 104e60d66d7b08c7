/** Groups: calls made as one give what single calls give; sends and receives inside meet in any order. */

import { type CommError, type CommOp, type Communicator, createWorld } from "twinccl";
import { failAt, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";
import { within } from "../../support/planted.ts";

const ints = (...values: number[]): Int32Array => Int32Array.from(values);

describe("a group", () => {
  test("without calls completes at once", async () => {
    const results = await inWorld(2, async (comm) => {
      const whole = comm.group(() => undefined);
      const before = whole.status;
      await whole;
      return [before, comm.stats().calls];
    });
    expect(results).toEqual(new Array(2).fill(["done", {}]));
  });

  test("lets two ranks send first, and a circle of five", async () => {
    for (const size of [2, 5]) {
      const results = await inWorld(size, async (comm) => {
        const recv = ints(-1);
        await comm.group(() => {
          void comm.send({ send: ints(comm.rank), peer: (comm.rank + 1) % size });
          void comm.recv({ recv, peer: (comm.rank + size - 1) % size });
        });
        return recv[0];
      });
      expect(results).toEqual(Array.from({ length: size }, (_, rank) => (rank + size - 1) % size));
    }
  });

  test("refuses two receives into one buffer, the same object or not", async () => {
    await inWorld(2, async (comm) => {
      const peer = 1 - comm.rank;
      const recv = comm.alloc("int32", 2).fill(7);
      const send = comm.alloc("int32", 2).fill(1);
      for (const second of [recv, recv.subarray(0, 2), recv.subarray(1, 2)]) {
        const op = comm.group(() => {
          void comm.send({ send, peer });
          void comm.send({ send: send.subarray(0, second.length), peer });
          void comm.recv({ recv, peer });
          void comm.recv({ recv: second, peer });
        });
        await expect(op).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "recv" });
      }
      expect([...(await recv.toHost())]).toEqual([7, 7]);
      // One buffer may be sent from twice.
      await comm.group(() => {
        void comm.send({ send, peer });
        void comm.send({ send, peer });
        void comm.recv({ recv, peer });
        void comm.recv({ recv: comm.alloc("int32", 2), peer });
      });
      expect([...(await recv.toHost())]).toEqual([1, 1]);
    });
  });

  test.each([1, 2, 3, 6])("of all pairs of %i ranks is an all-to-all", async (size) => {
    const results = await inWorld(size, async (comm) => {
      const send = Int32Array.from({ length: 2 * size }, (_, i) => 100 * comm.rank + i);
      const direct = new Int32Array(2 * size);
      await comm.allToAll({ send, recv: direct });
      const recv = new Int32Array(2 * size);
      await comm.group(() => {
        for (let peer = size - 1; peer >= 0; peer--) {
          const part = [2 * peer, 2 * peer + 2] as const;
          const args = { send: send.subarray(...part), recv: recv.subarray(...part) };
          if (peer === comm.rank) void comm.sendRecv({ ...args, to: peer, from: peer });
          else {
            void comm.recv({ recv: args.recv, peer });
            void comm.send({ send: args.send, peer });
          }
        }
      });
      return [[...recv], [...direct]];
    });
    for (const [grouped, direct] of results) expect(grouped).toEqual(direct);
  });

  test("of collective calls equals single calls, in their order", async () => {
    const calls: readonly ((comm: Communicator, a: Int32Array, b: Int32Array) => CommOp)[] = [
      (comm, a) => comm.allReduce({ send: a, op: "sum" }),
      (comm, a, b) => comm.allReduce({ send: a, recv: b, op: "max" }),
      (comm, _, b) => comm.reduce({ send: b, op: "sum", root: 2 }),
      (comm, _, b) => comm.broadcast({ recv: b, root: 2 }),
    ];
    const run = (grouped: boolean) =>
      inWorld(3, async (comm) => {
        const a = ints(comm.rank, 5, -comm.rank);
        const b = new Int32Array(3);
        const parts: CommOp[] = [];
        const post = (call: (typeof calls)[0]): CommOp => {
          const op = call(comm, a, b);
          parts.push(op);
          return op;
        };
        if (grouped) await comm.group(() => calls.forEach((call) => void post(call)));
        else for (const call of calls) await post(call);
        const numbers = parts.map(({ call }) => call);
        return [numbers, [...a], [...b], comm.stats().calls, comm.stats().sendBytes];
      });
    const single = await run(false);
    expect(await run(true)).toEqual(single);
    expect(single[0]?.[0]).toEqual([0, 1, 2, 3]);
  });

  test("on one rank meets single calls on another", async () => {
    const results = await inWorld(2, async (comm) => {
      const a = ints(comm.rank + 1);
      const recv = ints(0);
      if (comm.rank === 0) {
        await comm.group(() => {
          void comm.allReduce({ send: a, op: "sum" });
          void comm.send({ send: ints(7), peer: 1 });
          void comm.send({ send: ints(8), peer: 1 });
        });
        return [a[0]];
      }
      await comm.allReduce({ send: a, op: "sum" });
      const got = [a[0]];
      for (let message = 0; message < 2; message++) {
        await comm.recv({ recv, peer: 0 });
        got.push(recv[0] as number);
      }
      return got;
    });
    expect(results).toEqual([[3], [3, 7, 8]]);
  });

  test("inside a group belongs to the outer one", async () => {
    const results = await inWorld(2, async (comm) => {
      const peer = 1 - comm.rank;
      const recv = ints(-1, -1);
      const inner: CommOp[] = [];
      await comm.group(() => {
        void comm.send({ send: ints(comm.rank), peer });
        inner.push(comm.group(() => void comm.send({ send: ints(comm.rank + 10), peer })));
        expect(inner[0]?.status).toBe("waiting");
        inner.push(
          comm.group(() => {
            void comm.recv({ recv: recv.subarray(0, 1), peer });
            void comm.group(() => void comm.recv({ recv: recv.subarray(1), peer }));
          }),
        );
      });
      await Promise.all(inner);
      return [[...recv], inner.map(({ status }) => status)];
    });
    expect(results).toEqual([
      [
        [1, 11],
        ["done", "done"],
      ],
      [
        [0, 10],
        ["done", "done"],
      ],
    ]);
  });

  test("gives every part its result, and the number of its first call", async () => {
    const results = await inWorld(2, async (comm) => {
      await comm.barrier();
      const recv = comm.alloc("int32", 2);
      const parts: PromiseLike<unknown>[] = [];
      const whole = comm.group(() => {
        parts.push(comm.allGather({ send: ints(comm.rank), recv: recv as never }));
        parts.push(comm.barrier());
        const counts = { sendCounts: [1, 1], recvCounts: [1, 1] };
        parts.push(comm.allToAllv({ send: ints(comm.rank, 5), recv: ints(0, 0), ...counts }));
      });
      expect(await whole).toBeUndefined();
      expect(await parts[0]).toBe(recv);
      expect(await parts[1]).toBeUndefined();
      const exchanged = (await parts[2]) as { recv: Int32Array; recvCounts: number[] };
      return [whole.call, [...(await recv.toHost())], [...exchanged.recv], exchanged.recvCounts];
    });
    expect(results).toEqual([
      [1, [0, 1], [0, 1], [1, 1]],
      [1, [0, 1], [5, 5], [1, 1]],
    ]);
  });

  test("calls on another communicator inside the callback throw there, and are not posted", async () => {
    const results = await inWorld(2, async (comm) => {
      const sub = await comm.split({ color: 0 });
      const [a, b] = [ints(1), ints(2)];
      const thrown: unknown[] = [];
      await comm.group(() => {
        void comm.allReduce({ send: a, op: "sum" });
        try {
          void sub.allReduce({ send: b, op: "sum" });
        } catch (error) {
          thrown.push((error as CommError).field);
        }
      });
      return [a[0], b[0], ...thrown];
    });
    expect(results).toEqual([
      [2, 2, "calls"],
      [2, 2, "calls"],
    ]);
  });

  const self = () => ({ send: ints(1), recv: ints(0), to: 0, from: 0 });

  /** Operations of several parts, and how many times the executor moves data before the last one is under way. */
  const wholes: readonly (readonly [string, number, (comm: Communicator) => CommOp])[] = [
    ["a group", 0, (comm) => comm.group(() => void comm.allReduce({ send: ints(1), op: "sum" }))],
    [
      "a group of calls",
      2,
      (comm) =>
        comm.group(() => {
          void comm.allReduce({ send: ints(1), op: "sum" });
          void comm.sendRecv(self());
          void comm.allReduce({ send: ints(1), op: "sum" });
          void comm.sendRecv(self());
        }),
    ],
    ["a sendRecv", 0, (comm) => comm.sendRecv(self())],
    [
      "an inner group",
      1,
      (comm) => {
        let inner = comm.barrier();
        void comm.group(() => {
          void comm.allReduce({ send: ints(1), op: "sum" });
          inner = comm.group(() => void comm.sendRecv(self()));
        });
        return inner;
      },
    ],
  ];

  test.each(wholes)(
    "settles `enqueued` of %s at the submission, before it completes",
    async (_, earlier, post) => {
      const finish: (() => void)[] = [];
      const execute = () => new Promise<void>((resolve) => void finish.push(resolve));
      const world = await createWorld({
        backend: sim({ executor: { name: "slow", execute } }),
        size: 1,
      });
      const turn = () => new Promise((resolve) => setTimeout(resolve, 5));
      const run = world.run(async (comm) => {
        const whole = post(comm);
        let enqueued = false;
        void whole.enqueued.then(() => {
          enqueued = true;
        });
        for (let executed = 0; executed < earlier; executed++) {
          await turn();
          expect([enqueued, whole.status]).toEqual([false, "waiting"]);
          finish.shift()?.();
        }
        await turn();
        const before = [enqueued, whole.status];
        finish.shift()?.();
        await whole;
        await whole.enqueued;
        return [...before, finish.length];
      });
      const results = await within(2000, run).finally(() => world.close());
      expect(results).toEqual([[true, "submitted", 0]]);
    },
  );

  test("with an invalid part is never submitted: awaiting `enqueued` observes the failure", async () => {
    const results = await inWorld(2, async (comm) => {
      const whole = comm.group(() => {
        void comm.allReduce({ send: new Int32Array(comm.rank + 1), op: "sum" });
        void comm.barrier();
      });
      const why = await whole.enqueued.then(
        () => "submitted",
        (error) => error.code,
      );
      await comm.barrier();
      return why;
    });
    expect(results).toEqual(new Array(2).fill("ERR_COMM_MISMATCH"));
  });

  test("observes a failure through its awaited inner group", async () => {
    const results = await inWorld(2, async (comm) => {
      let inner: PromiseLike<unknown> = comm.barrier();
      void comm.group(() => {
        inner = comm.group(
          () => void comm.allReduce({ send: new Int32Array(comm.rank + 1), op: "sum" }),
        );
      });
      const why = await inner.then(
        () => "done",
        (error) => error.code,
      );
      await comm.barrier();
      return why;
    });
    expect(results).toEqual(new Array(2).fill("ERR_COMM_MISMATCH"));
  });
});

test("an await of a group observes the calls of a group inside it", async () => {
  await inWorld(2, async (comm) => {
    const outer = comm.group(() => {
      void comm.group(() => {
        void comm.allReduce({ send: new Int8Array(comm.rank + 1), op: "sum" });
      });
    });
    await expect(outer).rejects.toMatchObject({ code: "ERR_COMM_MISMATCH" });
    await comm.barrier();
  });
});

describe("a group that fails while its calls are posted", () => {
  /** Groups with a refused second call, and the ways to wait for them. */
  const ways: Record<string, (comm: Communicator) => CommOp> = {
    "by an injected fault": (comm) =>
      comm.group(() => {
        void comm.barrier();
        void comm.allReduce({ send: ints(1), op: "sum" });
      }),
    "by a signal": (comm) =>
      comm.group(() => {
        const controller = new AbortController();
        void comm.barrier();
        void comm.barrier({ signal: controller.signal });
        controller.abort("enough");
      }),
    "by a hook": (comm) => {
      const off = comm.hooks.before(({ collective }) => {
        if (collective === "allReduce") throw new Error("not today");
      });
      const whole = comm.group(() => {
        void comm.barrier();
        void comm.allReduce({ send: ints(1), op: "sum" });
      });
      off();
      return whole;
    },
  };

  async function inFaultyWorld<T>(way: string, program: (comm: Communicator) => Promise<T>) {
    const faults = way === "by an injected fault" ? [failAt(0, 1)] : [];
    const world = await createWorld({ backend: sim({ faults }), size: 1 });
    try {
      return await within(3000, world.run(program));
    } finally {
      await world.close();
    }
  }

  test.each(Object.entries(ways))("%s is one failure of its awaiting caller", async (way, make) => {
    const failures = await inFaultyWorld(way, async (comm) => {
      await expect(make(comm)).rejects.toThrow();
      await comm.barrier();
      return comm.stats().failures;
    });
    expect(failures).toEqual([1]);
  });

  test.each(Object.entries(ways))("%s is reported when it is not awaited", async (way, make) => {
    let failures: number | undefined;
    const run = inFaultyWorld(way, async (comm) => {
      expect(make(comm).status).toBe("failed");
      failures = comm.stats().failures;
      // Another failure than the call's own, which its text names.
      await expect(comm.barrier()).rejects.toThrow(/failed and was never awaited: \w*Error: ./);
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    expect(failures).toBe(1);
  });
});
