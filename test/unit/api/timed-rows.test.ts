/** Repeated calls where time is virtual: those of one number are dispatched when the last rank has made them. */
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Communicator, createWorld, DeadlockError } from "twinccl";
import { cpu, type Executor, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const link = { latencyNs: 1500, gigabytesPerSecond: 1 };

/** An executor that is done some turns of the event loop after it was given a call. */
function late(): Executor {
  const now = cpu();
  return {
    ...now,
    execute: (call) => new Promise((resolve) => setTimeout(() => resolve(now.execute(call)), 1)),
  };
}

const executors = [
  ["at once", cpu],
  ["later", late],
] as const;

/** The results of a program in a world of its own. */
async function inTime<T>(
  size: number,
  executor: () => Executor,
  program: (comm: Communicator) => Promise<T>,
): Promise<T[]> {
  const world = await createWorld({ backend: sim({ link, executor: executor() }), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

describe.each(executors)("repeated calls that are executed %s", (_, executor) => {
  test("take the time of calls with new views, and have their results", async () => {
    const program =
      (keeps: boolean) =>
      async (comm: Communicator): Promise<unknown> => {
        const all = comm.alloc("int32", 4).fill(comm.rank + 1);
        const view = (): typeof all => (keeps ? all : all.subarray(0, 4));
        const found: unknown[] = [];
        for (let step = 0; step < 24; step++) {
          comm.work(((step * 7 + comm.rank * 5) % 11) * 100);
          const op = comm.allReduce({ send: view(), op: step % 6 === 5 ? "min" : "sum" });
          // Some ranks run ahead of others.
          if ((step + comm.rank) % 3 !== 0) await op;
          if (step % 8 === 7) await comm.barrier();
          found.push(comm.stats().virtualNs);
        }
        await comm.barrier();
        return [found, comm.stats(), [...(await all.toHost())]];
      };
    expect(await inTime(3, executor, program(true))).toEqual(
      await inTime(3, executor, program(false)),
    );
  });

  test("of a communicator are done before it is closed", async () => {
    const left = await inTime(2, executor, async (comm) => {
      const half = await comm.split({ color: 0 });
      const send = half.alloc("int32", 1).fill(1);
      for (let step = 0; step < 3; step++) await half.allReduce({ send, op: "sum" });
      const last = half.allReduce({ send, op: "sum" });
      await half.close();
      return last.status;
    });
    expect(left).toEqual(["done", "done"]);
  });

  test("keep their order with calls behind them", async () => {
    const left = await inTime(2, executor, async (comm) => {
      const [a, b] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1).fill(2)];
      for (let step = 0; step < 2; step++) {
        await comm.allReduce({ send: a, recv: b, op: "sum" });
        await comm.allReduce({ send: b, recv: a, op: "sum" });
      }
      void comm.allReduce({ send: a, recv: b, op: "sum" });
      void comm.allReduce({ send: b, recv: a, op: "sum" });
      await comm.broadcast({ ...(comm.rank === 0 && { send: a }), recv: b, root: 0 });
      return [(await a.toHost())[0], (await b.toHost())[0]];
    });
    expect(left).toEqual([
      [64, 64],
      [64, 64],
    ]);
  });

  test("are a deadlock where a rank makes fewer", async () => {
    const run = inTime(3, executor, async (comm) => {
      const send = comm.alloc("int32", 1);
      for (let step = 0; step < (comm.rank === 1 ? 3 : 4); step++)
        await comm.allReduce({ send, op: "sum" });
    });
    await expect(run).rejects.toMatchObject({ cause: expect.any(DeadlockError) });
  });

  test("fail on every rank where their execution does, and the next ones do not", async () => {
    let fails = false;
    const failing = (): Executor => {
      const real = executor();
      const execute: Executor["execute"] = (call) => {
        if (fails) throw new Error("no more");
        return real.execute(call);
      };
      return { ...real, execute };
    };
    const ends = await inTime(2, failing, async (comm) => {
      const send = comm.alloc("int32", 1).fill(1);
      for (let step = 0; step < 3; step++) await comm.allReduce({ send, op: "sum" });
      fails = true;
      const end = await comm.allReduce({ send, op: "sum" }).catch((error) => error.message);
      fails = false;
      await comm.allReduce({ send, op: "sum" });
      return [end, (await send.toHost())[0]];
    });
    for (const [end, value] of ends) {
      expect(end).toMatch("no more");
      expect(value).toBe(16);
    }
  });

  test("are refused once the rank's program has returned, and behind the run", async () => {
    const refused: unknown[] = [];
    const calls: (() => void)[] = [];
    await inTime(2, executor, async (comm) => {
      const send = comm.alloc("int32", 1).fill(1);
      const call = () => comm.allReduce({ send, op: "sum" });
      calls[comm.rank] = () => void call().catch((error) => refused.push(error.message));
      for (let step = 0; step < 3; step++) await call();
      if (comm.rank === 1) return;
      // Its program is behind that of rank 1 by some turns of the event loop.
      await new Promise((resolve) => setTimeout(resolve, 1));
      calls[1]?.();
      await new Promise((resolve) => setTimeout(resolve, 1));
    });
    calls[0]?.();
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(refused).toEqual([
      expect.stringContaining("rank 1's program has returned"),
      expect.stringContaining("closed"),
    ]);
  });

  test("are not referenced once they are done, whichever rank made them first", async () => {
    const refs: WeakRef<object>[] = [];
    await inTime(2, executor, async (comm) => {
      const make = async (): Promise<void> => {
        const send = comm.alloc("int32", 1);
        for (let step = 0; step < 4; step++) {
          // Rank 1 comes first.
          if (comm.rank === 0) for (let hop = 0; hop < 4; hop++) await null;
          await comm.allReduce({ send, op: "sum" });
        }
        refs.push(new WeakRef(send));
      };
      await make();
      if (comm.rank > 0) return;
      const isGone = (): boolean[] => refs.map((ref) => ref.deref() === undefined);
      // A collection that is under way keeps what was referenced at its begin.
      for (let turn = 0; turn < 50 && isGone().includes(false); turn++) {
        await sleep(5);
        collectGarbage();
      }
      expect(isGone()).toEqual([true, true]);
    });
  });
});
