/** Consecutive calls that several ranks of one process repeat: they form one batch across the ranks, with the results of single calls. */
import type { CallOptions, CommError, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { seen, turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

type Args = ReturnType<typeof doubling>;
type Counts = () => readonly [alone: number, behind: number];

/** Runs programs of two ranks, which have made the call before, and counts how often their session is handed one again. */
async function pair(
  program: (comm: Communicator, args: Args, counts: Counts) => Promise<void>,
): Promise<void> {
  await watch(2, async ({ repeats, world }) => {
    const counts: Counts = () => repeats.count();
    await world.run(async (comm) => {
      const args = doubling(comm);
      for (let i = 0; i < 2; i++) await comm.allReduce(args);
      if (comm.rank === 0) counts();
      await comm.barrier();
      await program(comm, args, counts);
    });
    await expectHealthy(world);
  });
}

/** Makes the call so often, and looks at every outcome at once. */
function startAll(comm: Communicator, args: Args, times: number): CommOp[] {
  return Array.from({ length: times }, () => {
    const op = comm.allReduce(args) as CommOp;
    op.catch(() => undefined);
    return op;
  });
}

/** A communicator of both ranks that may be lost, and a call that they have made on it before. */
async function childOf(comm: Communicator, options: CallOptions = {}) {
  const child = await comm.split({ color: 0 });
  const again = { ...doubling(child), ...options };
  for (let i = 0; i < 2; i++) await child.allReduce(again);
  await child.barrier();
  return { child, again };
}

const numbers = (ops: readonly CommOp[]): number[] => ops.map(({ call }) => call);
const outcomes = (ops: readonly CommOp[]): Promise<string[]> => Promise.all(ops.map(outcome));

describe("batches of several ranks' calls", () => {
  test("are submitted without waiting, numbered, counted and done in order", async () => {
    await pair(async (comm, args, counts) => {
      const ops = startAll(comm, args, 5);
      expect(numbers(ops)).toEqual([3, 4, 5, 6, 7]);
      expect(ops.map((op) => op.status)).toEqual(new Array(5).fill("waiting"));
      await ops[4]?.enqueued;
      expect(ops.map((op) => op.status)).not.toContain("waiting");
      const order: number[] = [];
      await Promise.all(ops.map((op) => op.then(() => order.push(op.call))));
      expect(order).toEqual([3, 4, 5, 6, 7]);
      if (comm.rank === 0) expect(counts()).toEqual([1, 4]);
      // Two ranks double what each holds.
      expect([...(await args.send.toHost())]).toEqual([2 ** 7]);
      expect(comm.stats()).toMatchObject({ calls: { allReduce: 7, barrier: 1 }, failures: 0 });
    });
  });

  test("end with the turn: calls of a later rank match the queued ones", async () => {
    await pair(async (comm, args, counts) => {
      if (comm.rank === 1) await turns(3);
      const ops = startAll(comm, args, 3);
      expect(numbers(ops)).toEqual([3, 4, 5]);
      expect(await outcomes(ops)).toEqual(["done", "done", "done"]);
      if (comm.rank === 0) expect(counts()).toEqual([3, 0]);
    });
  });

  test("may be longer on one rank than on another", async () => {
    await pair(async (comm, args) => {
      const early = startAll(comm, args, comm.rank === 0 ? 4 : 1);
      expect(await outcome(early[0]!)).toBe("done");
      if (comm.rank === 1) early.push(...startAll(comm, args, 3));
      expect(numbers(early)).toEqual([3, 4, 5, 6]);
      expect(await outcomes(early)).toEqual(new Array(4).fill("done"));
    });
  });

  test("stop at a call of another kind, and at a group", async () => {
    await pair(async (comm, args, counts) => {
      const ops = startAll(comm, args, 2);
      const between = comm.broadcast({ recv: args.send, root: 1 });
      ops.push(...startAll(comm, args, 2));
      const grouped = comm.group(() => void comm.allReduce(args));
      ops.push(...startAll(comm, args, 1));
      await Promise.all([between, grouped, ...ops]);
      expect(numbers(ops)).toEqual([3, 4, 6, 7, 9]);
      expect([...(await args.send.toHost())]).toEqual([2 ** 8]);
      if (comm.rank === 0) expect(counts()[0]).toBeGreaterThan(1);
    });
  });

  test("are distinguished by every rank's arguments", async () => {
    await pair(async (comm) => {
      const recv = comm.alloc("int32", 2);
      const [ten, twenty] = [10, 20].map((value) => comm.alloc("int32", 1).fill(value));
      const gather = (value: 10 | 20): CommOp => {
        // Rank 0 makes the same call each time, rank 1 one of two.
        const send = comm.rank === 0 || value === 10 ? ten! : twenty!;
        return comm.allGather({ send, recv }) as CommOp;
      };
      for (const value of [10, 10, 20, 20] as const) await gather(value);
      for (const values of [
        [20, 10],
        [10, 20],
        [20, 20, 10],
        [10, 10, 20],
      ] as const) {
        await comm.barrier();
        await Promise.all(values.map(gather));
        expect([...(await recv.toHost())]).toEqual([10, values.at(-1)]);
      }
    });
  });

  test("may be begun by any rank", async () => {
    let go = (): void => undefined;
    const gone = new Promise<void>((resolve) => {
      go = resolve;
    });
    await pair(async (comm, args, counts) => {
      // The turn in which rank 1 makes its calls is not over before rank 0 has made its own.
      if (comm.rank === 0) await gone;
      else go();
      const ops = startAll(comm, args, 3);
      expect(await outcomes(ops)).toEqual(["done", "done", "done"]);
      if (comm.rank === 0) expect(counts()).toEqual([1, 2]);
      expect([...(await args.send.toHost())]).toEqual([2 ** 5]);
    });
  });

  test("continue where one rank alternates its buffers and the other does not", async () => {
    await pair(async (comm, args, counts) => {
      const other = comm.rank === 0 ? doubling(comm) : args;
      for (const each of [other, args, other, args]) await comm.allReduce(each);
      await comm.barrier();
      if (comm.rank === 0) counts();
      const ops = [other, args, other, args].flatMap((each) => startAll(comm, each, 1));
      expect(await outcomes(ops)).toEqual(new Array(4).fill("done"));
      if (comm.rank === 0) expect(counts()).toEqual([1, 3]);
    });
  });

  test("continue while unused memory is disposed", async () => {
    await pair(async (comm, args, counts) => {
      const idle = Array.from({ length: 3 }, () => comm.alloc("float32", 1));
      const ops = idle.flatMap((buffer) => {
        buffer.dispose();
        return startAll(comm, args, 1);
      });
      // The first one waits for the stream, and the others with it: rows go on.
      if (comm.rank === 1) expect(counts()).toEqual([1, 2]);
      expect(await outcomes(ops)).toEqual(["done", "done", "done"]);
      expect([...(await args.send.toHost())]).toEqual([2 ** 5]);
    });
  });

  test("keep their order beside messages and other communicators", async () => {
    await pair(async (comm, args) => {
      const other = await comm.split({ color: 0 });
      const others = doubling(other);
      for (let i = 0; i < 2; i++) await other.allReduce(others);
      const got = comm.alloc("int32", 1);
      const order: string[] = [];
      const note = (name: string, op: PromiseLike<unknown>) => op.then(() => order.push(name));
      await Promise.all([
        note("a", comm.allReduce(args)),
        note("b", comm.allReduce(args)),
        note("c", other.allReduce(others)),
        note(
          "d",
          comm.sendRecv({ send: args.send, to: 1 - comm.rank, recv: got, from: 1 - comm.rank }),
        ),
        note("e", comm.allReduce(args)),
        note("f", other.allReduce(others)),
      ]);
      expect(order.filter((name) => "abde".includes(name))).toEqual(["a", "b", "d", "e"]);
      expect(order.filter((name) => "cf".includes(name))).toEqual(["c", "f"]);
      expect([...(await got.toHost())]).toEqual([2 ** 4]);
    });
  });
});

describe("a batch that another rank begins", () => {
  /** Rank 1 stops, then makes the call in the turn in which rank 0 has begun a batch; gives the code of its call. */
  async function lateCall(stop: (comm: Communicator) => unknown): Promise<string> {
    let call = (): CommOp => {
      throw new Error("rank 1 has not stopped");
    };
    let late = "";
    await watch(2, async ({ world }) => {
      await world.run(async (comm) => {
        const { child, again } = await childOf(comm);
        if (comm.rank === 1) {
          call = () => child.allReduce(again) as CommOp;
          await stop(child);
          return;
        }
        await turns();
        const begun = outcome(child.allReduce(again));
        late = await outcome(call());
        child.abort();
        expect(await begun).toBe("ERR_COMM_ABORTED");
      });
    });
    return late;
  }

  test("takes no call of a rank that has closed its end", async () => {
    expect(await lateCall((child) => child.close())).toBe("ERR_COMM_CLOSED");
  });

  test("takes no call of a rank behind the end of its program", async () => {
    expect(await lateCall(() => undefined)).toBe("ERR_COMM_CLOSED");
  });
});

describe("a batch that fails", () => {
  test("reports a mismatch like any call, and later calls are batched again", async () => {
    await pair(async (comm, args, counts) => {
      const max = { ...args, op: "max" } as const;
      await comm.allReduce(max);
      // A buffer knows the call that was last made with it: this makes it the sum on both.
      await comm.allReduce(args);
      if (comm.rank === 0) counts();
      await comm.barrier();
      const ops = startAll(comm, args, 2);
      const odd = (comm.rank === 0 ? comm.allReduce(args) : comm.allReduce(max)) as CommOp;
      odd.catch(() => undefined);
      ops.push(odd, ...startAll(comm, args, 2));
      expect(await outcomes(ops)).toEqual(["done", "done", "ERR_COMM_MISMATCH", "done", "done"]);
      expect(numbers(ops)).toEqual([6, 7, 8, 9, 10]);
    });
  });

  test("is refused when a rank disposed its buffer after the call", async () => {
    await pair(async (comm) => {
      const args = doubling(comm);
      for (let i = 0; i < 2; i++) await comm.allReduce(args);
      await comm.barrier();
      const ops = startAll(comm, args, 2);
      if (comm.rank === 0) args.send.dispose();
      const found = await outcomes(ops);
      expect(found).toEqual(["ERR_COMM_CLOSED", "ERR_COMM_CLOSED"]);
    });
  });

  test("fails alone where NCCL refuses it, on both ranks", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(2, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const args = doubling(comm);
        for (let i = 0; i < 2; i++) await comm.allReduce(args);
        await comm.barrier();
        // Each row is a call of each of the two.
        if (comm.rank === 0) gpus.machine.failNext("allReduce", planned, 5);
        const ops = startAll(comm, args, 4);
        const found = await Promise.all(
          ops.map((op) =>
            op.then(
              () => "done",
              (error) => error,
            ),
          ),
        );
        const own = seen(planned, { rank: comm.rank, device: comm.device });
        expect(found).toEqual(["done", "done", own, "done"]);
        expect(numbers(ops)).toEqual([3, 4, 5, 6]);
        expect(comm.stats()).toMatchObject({ failures: 1 });
      });
      await expectHealthy(world);
    });
  });

  test("takes no call of a rank that must first report an earlier failure", async () => {
    await pair(async (comm, args) => {
      const bad = comm.rank === 1 && comm.allReduce({ send: args.send, op: "nonsense" as "sum" });
      await turns(2);
      const ops = startAll(comm, args, 2);
      if (bad !== false) {
        expect(await outcomes(ops)).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
        expect(await outcome(bad)).toBe("ERR_COMM_ARG");
        ops.splice(0, 2, ...startAll(comm, args, 2));
      }
      expect(await outcomes(ops)).toEqual(["done", "done"]);
      expect(numbers(ops)).toEqual([3, 4]);
    });
  });

  test("ends with the communicator, also calls that wait for another rank", async () => {
    await pair(async (comm) => {
      const { child, again } = await childOf(comm);
      const ops = startAll(child, again, comm.rank === 0 ? 3 : 1);
      if (comm.rank === 1) child.abort(new Error("enough"));
      const found = await outcomes(ops);
      expect(found.slice(1)).toEqual(found.slice(1).map(() => "ERR_COMM_ABORTED"));
      expect(await outcome(child.allReduce(again))).toBe("ERR_COMM_ABORTED");
    });
  });

  test("times out at its deadline, and the missing rank is named", async () => {
    await pair(async (comm) => {
      const { child, again } = await childOf(comm, { timeoutMs: 60 });
      const ops = startAll(child, again, comm.rank === 0 ? 2 : 1);
      expect(await outcome(ops[0]!)).toBe("done");
      if (comm.rank === 1) return;
      const error = (await ops[1]!.catch((thrown) => thrown)) as CommError;
      expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", call: 4, ranks: [1] });
    });
  });

  test("does not begin once a rank closed its communicator, and open calls end first", async () => {
    await pair(async (comm) => {
      const { child, again } = await childOf(comm);
      const ops = startAll(child, again, 2);
      const closed = child.close();
      expect(await outcome(child.allReduce(again))).toBe("ERR_COMM_CLOSED");
      expect(await outcomes(ops)).toEqual(["done", "done"]);
      await closed;
    });
  });
});
