/** Consecutive calls that a single rank repeats: they form one batch with one wait, and the results of single calls. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { CallOptions, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { isAll } from "../../../../support/seed.ts";
import { watchRepeats } from "../../../../support/watched-repeats.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

/** Uses a world of one rank, and counts how often its session is handed a call by itself and behind another one. */
async function counted(
  use: (
    comm: Communicator,
    counts: () => readonly [alone: number, behind: number],
  ) => Promise<void>,
): Promise<void> {
  await watch(1, async ({ repeats, world }) => {
    await world.run((comm) => use(comm, () => repeats.count()));
    await expectHealthy(world);
  });
}

const numbers = (ops: readonly CommOp[]): number[] => ops.map(({ call }) => call);

describe("calls of one turn", () => {
  test("are one batch of any repeated calls, numbered, counted and done in order", async () => {
    await counted(async (comm, counts) => {
      const [a, b] = [doubling(comm), doubling(comm)];
      const make = (): CommOp[] => [
        comm.allReduce(a),
        comm.allReduce(b),
        comm.barrier(),
        comm.allReduce(a),
      ];
      await Promise.all(make());
      await Promise.all(make());
      counts();
      const order: number[] = [];
      const ops = make();
      expect(ops.map(({ status }) => status)).toEqual(new Array(4).fill("submitted"));
      expect(numbers(ops)).toEqual([8, 9, 10, 11]);
      await Promise.all(ops.map((op) => op.then(() => order.push(op.call))));
      expect(order).toEqual([8, 9, 10, 11]);
      expect(counts()).toEqual([1, 3]);
      expect(comm.stats()).toMatchObject({ calls: { allReduce: 9, barrier: 3 } });
    });
  });

  test("begin another batch after an await, and after a call of another communicator", async () => {
    await counted(async (comm, counts) => {
      const other = await comm.split({ color: 0 });
      const [mine, others] = [doubling(comm), doubling(other)];
      for (let i = 0; i < 2; i++) {
        await comm.allReduce(mine);
        await other.allReduce(others);
      }
      counts();
      const order: string[] = [];
      const note = (name: string, op: CommOp) => op.then(() => order.push(name));
      const first = [1, 2, 3].map((at) => note(`mine ${at}`, comm.allReduce(mine)));
      const second = [1, 2].map((at) => note(`others ${at}`, other.allReduce(others)));
      await Promise.all([...first, ...second, note("mine 4", comm.allReduce(mine))]);
      expect(order).toEqual(["mine 1", "mine 2", "mine 3", "others 1", "others 2", "mine 4"]);
      expect(counts()).toEqual([3, 3]);
      await comm.allReduce(mine);
      expect(counts()).toEqual([1, 0]);
      await other.close();
    });
  });

  test("are read with the results of the last of them", async () => {
    await counted(async (comm, counts) => {
      const args = { send: comm.alloc("int32", 1).fill(1), op: { preMul: 2 } } as const;
      const plain = { send: args.send, op: "max" } as const;
      await comm.allReduce(plain);
      await comm.allReduce(args);
      for (let i = 0; i < 5; i++) void comm.allReduce(plain);
      expect((await args.send.toHost())[0]).toBe(2);
      expect(counts()).toEqual([1, 4]);
    });
  });
});

describe("a batch continues only with the same calls", () => {
  /** A call that was made before. */
  async function known(comm: Communicator) {
    const args = doubling(comm);
    for (let i = 0; i < 2; i++) await comm.allReduce(args);
    return args;
  }

  test("not after a hook was added", async () => {
    await counted(async (comm, counts) => {
      const args = await known(comm);
      void comm.allReduce(args);
      const numbers: number[] = [];
      const unhook = comm.hooks.after(({ call }) => numbers.push(call));
      await comm.allReduce(args);
      unhook();
      expect(numbers).toEqual([3]);
      counts();
      await Promise.all([comm.allReduce(args), comm.allReduce(args)]);
      expect(counts()).toEqual([1, 1]);
    });
  });

  test("not after a listener was added", async () => {
    await counted(async (comm) => {
      const args = await known(comm);
      void comm.allReduce(args);
      const outcomes: unknown[] = [];
      const listen = (message: unknown) => outcomes.push((message as { call: number }).call);
      const channel = "tracing:twinccl:allReduce:asyncEnd";
      subscribe(channel, listen);
      try {
        await comm.allReduce(args);
      } finally {
        unsubscribe(channel, listen);
      }
      expect(outcomes).toEqual([3]);
    });
  });

  test("not inside of a group, nor of a recording", async () => {
    await counted(async (comm, counts) => {
      const args = await known(comm);
      void comm.allReduce(args);
      counts();
      const made: CommOp[] = [];
      const grouped = comm.group(() => {
        made.push(comm.allReduce(args));
        expect(made[0]?.status).toBe("waiting");
      });
      await grouped;
      const last = comm.allReduce(args);
      const graph = comm.capture(() => void made.push(comm.allReduce(args)));
      expect(made[1]?.call).toBe(-1);
      await last;
      await (await graph).replay();
      expect([...(await args.send.toHost())]).toEqual([1]);
      expect(comm.stats().calls).toMatchObject({ allReduce: 5, capture: 1, replay: 1 });
    });
  });

  test("not with a signal, another deadline, or an invalid deadline", async () => {
    await counted(async (comm, counts) => {
      const args = await known(comm);
      void comm.allReduce(args);
      counts();
      const { signal } = new AbortController();
      const made: CommOp[] = [];
      const differently = (options: CallOptions): Promise<string> => {
        const op = comm.allReduce({ ...args, ...options });
        made.push(op);
        // Looked at before the next call.
        op.catch(() => undefined);
        return outcome(op);
      };
      const outcomes = [
        differently({ signal: AbortSignal.abort() }),
        differently({ signal }),
        differently({ timeoutMs: 10_000 }),
        differently({ timeoutMs: 10_000 }),
        differently({ timeoutMs: Number.NaN }),
      ];
      expect(await Promise.all(outcomes)).toEqual([
        "ERR_COMM_ABORTED",
        "done",
        "done",
        "done",
        "ERR_COMM_ARG",
      ]);
      expect(numbers(made)).toEqual([-1, 3, 4, 5, -1]);
      expect(counts()[1]).toBe(1);
    });
  });

  test("not with a buffer that was disposed, or an argument that throws when it is read", async () => {
    await counted(async (comm) => {
      const args = await known(comm);
      void comm.allReduce(args);
      const thrown = new Error("not today");
      const hostile = {
        op: "sum" as const,
        get send(): typeof args.send {
          throw thrown;
        },
      };
      const refused = comm.allReduce(hostile);
      await expect(refused).rejects.toBe(thrown);
      for (const lost of ["send", "recv"] as const) {
        const two = { ...doubling(comm), recv: comm.alloc("int32", 1) };
        for (let i = 0; i < 2; i++) await comm.allReduce(two);
        const first = comm.allReduce(two);
        two[lost].dispose();
        expect(await outcome(comm.allReduce(two))).toBe("ERR_COMM_CLOSED");
        expect(await outcome(first)).toBe("done");
      }
      for (const wrong of [undefined, null, 7, "send"]) {
        const right = await known(comm);
        await comm.barrier();
        void comm.allReduce(right);
        const refused = comm.allReduce(wrong as unknown as typeof right);
        expect(await outcome(refused)).toBe("ERR_COMM_ARG");
        void comm.barrier();
        expect(await outcome(comm.barrier(wrong as unknown as object))).toBe(
          wrong === undefined ? "done" : "ERR_COMM_ARG",
        );
      }
    });
  });

  test("not with lists that were changed meanwhile, but with equal ones", async () => {
    await counted(async (comm, counts) => {
      const [send, recv] = [comm.alloc("int32", 4).fill(7), comm.alloc("int32", 4)];
      const lists = { sendCounts: [2], recvCounts: [2] };
      const make = () => comm.allToAllv({ send, recv, ...lists });
      for (let i = 0; i < 2; i++) await make();
      counts();
      const ops = [make(), make()];
      lists.sendCounts[0] = 3;
      const differing = outcome(make());
      lists.recvCounts[0] = 3;
      ops.push(make());
      expect(await Promise.all(ops.map(outcome))).toEqual(["done", "done", "done"]);
      expect(await differing).not.toBe("done");
      expect([...(await recv.toHost())]).toEqual([7, 7, 7, 0]);
      expect(counts()).toEqual([1, 1]);
    });
  });

  test("a read of memory waits for the last call with it, through any buffer", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(1, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const whole = comm.alloc("int32", 2).fill(1);
        const into = comm.alloc("int32", 1);
        const part = (at: number) => whole.subarray(at, at + 1);
        const [a, b] = [part(0), part(1)].map((send) => ({ send, recv: into, op: "sum" as const }));
        for (let i = 0; i < 2; i++) await Promise.all([comm.allReduce(a!), comm.allReduce(b!)]);
        gpus.machine.failNext("allReduce", planned, 3);
        for (const args of [a, b, a, b]) void comm.allReduce(args!);
        await expect(a!.send.toHost()).rejects.toEqual(seen(planned));
        await expect(into.toHost()).rejects.toEqual(seen(planned));
        void comm.allReduce(b!);
        void comm.allReduce(a!);
        expect([...(await whole.toHost())]).toEqual([1, 1]);
      });
      await expectHealthy(world);
    });
  });
});

describe("a batch that fails", () => {
  test("loses the refused call and its number, and the next call begins another batch", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(1, async ({ gpus, world, repeats }) => {
      await world.run(async (comm) => {
        const args = doubling(comm);
        for (let i = 0; i < 2; i++) await comm.allReduce(args);
        gpus.machine.failNext("allReduce", planned, 2);
        const ops = [1, 2, 3, 4, 5].map(() => comm.allReduce(args));
        expect(numbers(ops)).toEqual([2, 3, 4, 5, 6]);
        const found = await Promise.all(
          ops.map((op) =>
            op.then(
              () => "done",
              (error) => error,
            ),
          ),
        );
        expect(found).toEqual([
          "done",
          "done",
          seen(planned, { rank: 0, size: 1, call: 4 }),
          "done",
          "done",
        ]);
        expect(comm.stats()).toMatchObject({ calls: { allReduce: 7 }, failures: 1 });
      });
      expect(repeats.numbers).toEqual([1, 2, 3, 4, 5, 6]);
      await expectHealthy(world);
    });
  });

  test("fails only reads of a buffer of the refused call", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(1, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const [a, b] = [doubling(comm), doubling(comm)];
        for (let i = 0; i < 2; i++) await Promise.all([comm.allReduce(a), comm.allReduce(b)]);
        gpus.machine.failNext("allReduce", planned, 1);
        void comm.allReduce(a);
        void comm.allReduce(b);
        const reads = await Promise.allSettled([a.send.toHost(), b.send.toHost()]);
        expect(reads).toMatchObject([
          { status: "fulfilled" },
          { status: "rejected", reason: seen(planned) },
        ]);
        expect(await outcome(comm.allReduce(a))).toBe("done");
      });
      await expectHealthy(world);
    });
  });

  test("counts as observed once every buffer of it was read", async () => {
    const planned = ncclError("streamDone", 1, "ncclUnhandledCudaError");
    await watch(1, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const [a, b] = [doubling(comm), doubling(comm)];
        for (let i = 0; i < 2; i++) await Promise.all([comm.allReduce(a), comm.allReduce(b)]);
        gpus.machine.failNext("streamDone", planned);
        void comm.allReduce(a);
        void comm.allReduce(b);
        const reads = await Promise.allSettled([a.send.toHost(), b.send.toHost()]);
        expect(reads.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
        expect(await outcome(comm.allReduce(a))).toBe("done");
      });
      await expectHealthy(world);
    });
  });

  test("ends with its communicator, which then takes no more calls", async () => {
    await watch(1, async ({ gpus, world, repeats }) => {
      await world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        const args = doubling(child);
        for (let i = 0; i < 2; i++) await child.allReduce(args);
        const made = repeats.numbers.length;
        gpus.machine.hold();
        const under = [1, 2, 3].map(() => child.allReduce(args));
        const outcomes = Promise.all(under.map(outcome));
        child.abort(new Error("enough"));
        expect(await outcome(child.allReduce(args))).toBe("ERR_COMM_ABORTED");
        expect(await outcomes).toEqual(new Array(3).fill("ERR_COMM_ABORTED"));
        expect(repeats.numbers).toHaveLength(made + 3);
        gpus.machine.release();
        await turns(5);
      });
      await expectHealthy(world);
    });
  });

  test("does not continue once its communicator was closed", async () => {
    await counted(async (comm, counts) => {
      const child = await comm.split({ color: 0 });
      const args = doubling(child);
      for (let i = 0; i < 2; i++) await child.allReduce(args);
      counts();
      const last = child.allReduce(args);
      const closed = child.close();
      expect(await outcome(child.allReduce(args))).toBe("ERR_COMM_CLOSED");
      expect(await outcome(last)).toBe("done");
      await closed;
      expect(counts()).toEqual([1, 0]);
    });
  });
});

describe("a batch of very many calls", () => {
  const many = isAll ? 140_000 : 14_000;

  test.each(["close", "abort", "deadline"])(
    "ends by %s",
    async (how) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 1, async (world) => {
        // How many are queued is what counts; the fake would take its time for each.
        watchRepeats(gpus.sessions[0]!, true);
        await world.run(async (comm) => {
          const child = await comm.split({ color: 0 });
          const args = { ...doubling(child), ...(how === "deadline" && { timeoutMs: 500 }) };
          for (let i = 0; i < 2; i++) await child.allReduce(args);
          if (how !== "close") gpus.machine.hold();
          let last: CommOp | undefined;
          for (let i = 0; i < many; i++) {
            last = child.allReduce(args);
            if (how !== "close") last.catch(() => undefined);
          }
          const came = outcome(last!);
          if (how === "close") await child.close();
          if (how === "abort") child.abort(new Error("enough"));
          expect(await came).toBe(how === "close" ? "done" : "ERR_COMM_ABORTED");
          gpus.machine.release();
          await turns(5);
        });
        await expectHealthy(world);
      });
    },
    180_000,
  );
});
