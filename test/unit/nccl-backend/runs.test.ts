/** Calls that a rank alone makes again back to back: they share what waits for them, and nothing else. */
import type { CommOp, Communicator } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { ncclError } from "../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../support/planted.ts";
import { doubling, outcome, watch } from "./again.ts";
import { cleanGpus, inWorld, turns } from "./gpus.ts";

/** Uses a world of one rank, and counts how often its session is handed a call by itself and behind another one. */
async function counted(
  use: (
    comm: Communicator,
    counts: () => readonly [alone: number, behind: number],
  ) => Promise<void>,
): Promise<void> {
  await watch(1, async ({ gpus, world }) => {
    const [session] = gpus.sessions;
    const alone = vi.spyOn(session!, "enqueueAgain");
    const behind = vi.spyOn(session!, "enqueueBehind");
    const counts = () => {
      const found = [alone.mock.calls.length, behind.mock.calls.length] as const;
      alone.mockClear();
      behind.mockClear();
      return found;
    };
    await world.run((comm) => use(comm, counts));
    await expectHealthy(world);
  });
}

const numbers = (ops: readonly CommOp[]): number[] => ops.map(({ call }) => call);

describe("calls of one turn", () => {
  test("are one run, whatever they are, and are numbered, counted and done in turn", async () => {
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

  test("begin another run after an await, and after a call of another communicator", async () => {
    await counted(async (comm, counts) => {
      const other = (await comm.split({ color: 0 })) as Communicator;
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

  test("are read as the last of them left them", async () => {
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

describe("a run that goes wrong", () => {
  test("loses the call that could not be made, and its number, and the next call begins another", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(1, async ({ gpus, world, again }) => {
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
        expect(found).toEqual(["done", "done", planned, "done", "done"]);
        expect(comm.stats()).toMatchObject({ calls: { allReduce: 7 }, failures: 1 });
      });
      expect(again()).toEqual([1, 2, 3, 4, 5, 6]);
      await expectHealthy(world);
    });
  });

  test("tells whoever reads a buffer of the call that could not be made, and of no other", async () => {
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
          { status: "rejected", reason: planned },
        ]);
        expect(await outcome(comm.allReduce(a))).toBe("done");
      });
      await expectHealthy(world);
    });
  });

  test("has been looked at by those who read every buffer of it", async () => {
    const planned = ncclError("eventRecord", 1, "ncclUnhandledCudaError");
    await watch(1, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const [a, b] = [doubling(comm), doubling(comm)];
        for (let i = 0; i < 2; i++) await Promise.all([comm.allReduce(a), comm.allReduce(b)]);
        gpus.machine.failNext("eventRecord", planned);
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
    await watch(1, async ({ gpus, world, again }) => {
      await world.run(async (comm) => {
        const child = (await comm.split({ color: 0 })) as Communicator;
        const args = doubling(child);
        for (let i = 0; i < 2; i++) await child.allReduce(args);
        const made = again().length;
        gpus.machine.hold();
        const under = [1, 2, 3].map(() => child.allReduce(args));
        const outcomes = Promise.all(under.map(outcome));
        child.abort(new Error("enough"));
        expect(await outcome(child.allReduce(args))).toBe("ERR_COMM_ABORTED");
        expect(await outcomes).toEqual(new Array(3).fill("ERR_COMM_ABORTED"));
        expect(again()).toHaveLength(made + 3);
        gpus.machine.release();
        await turns(5);
      });
      await expectHealthy(world);
    });
  });

  test("is not gone on with once its communicator was closed", async () => {
    await counted(async (comm, counts) => {
      const child = (await comm.split({ color: 0 })) as Communicator;
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

describe("a run of very many calls", () => {
  const many = 140_000;

  test.each(["close", "abort", "deadline"])(
    "ends by %s",
    async (how) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 1, async (world) => {
        const [session] = gpus.sessions;
        // How many are queued is what counts; the fake would take its time for each.
        vi.spyOn(session!, "enqueueBehind").mockImplementation(() => undefined);
        await world.run(async (comm) => {
          const child = (await comm.split({ color: 0 })) as Communicator;
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
    30_000,
  );
});
