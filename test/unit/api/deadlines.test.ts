/** Deadlines in real time, by a clock that the tests set: each comes due at its own time, never before, under one timer. */
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { CommInfo, JobSession } from "../../../src/api/backend.ts";
import { Alarm, Deadlines, missingCause, timeoutCause } from "../../../src/api/ledger/deadlines.ts";
import type { Posting } from "../../../src/api/ledger/posting.ts";
import { completeOp, failOp, Operation } from "../../../src/api/op.ts";
import { LivingTimers } from "../../support/living-timers.ts";
import { longTest } from "../../support/long-test.ts";
import { randomWords } from "../../support/seed.ts";

const observer = { awaited: () => undefined, resumed: () => undefined };

/** A call that must be done in so many milliseconds from when it is watched. */
function callWith(timeoutMs: number): Posting {
  const op = new Operation({ rank: 0, worldRank: 0, callingRank: 0, observer });
  return { op, calledAtPs: 0, timeoutMs } as Posting;
}

/** Deadlines, and which calls were not done in time, with when that was found. */
class Watched {
  readonly late: [call: number, atMs: number][] = [];
  readonly calls: Posting[] = [];
  readonly #startMs = performance.now();
  readonly #deadlines = new Deadlines(async (posting) => {
    this.late.push([this.calls.indexOf(posting), this.nowMs]);
    failOp(posting.op, new Error("late"));
  });

  get nowMs(): number {
    return performance.now() - this.#startMs;
  }

  watch(...timeoutsMs: readonly number[]): Operation[] {
    return timeoutsMs.map((timeoutMs) => {
      const posting = callWith(timeoutMs);
      this.calls.push(posting);
      this.#deadlines.watch(posting);
      return posting.op;
    });
  }
}

beforeEach(({ onTestFinished }) => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  // Behind what a test puts in the place of these timers.
  onTestFinished(() => void vi.useRealTimers());
});

describe("deadlines", () => {
  test("of different lengths expire in the order of their ends", async () => {
    const watched = new Watched();
    watched.watch(50, 20, 80, 20);
    await vi.advanceTimersByTimeAsync(10);
    watched.watch(20, 5, 1000);
    await vi.advanceTimersByTimeAsync(2000);
    expect(watched.late).toEqual([
      [5, 15],
      [1, 20],
      [3, 20],
      [4, 30],
      [0, 50],
      [2, 80],
      [6, 1010],
    ]);
  });

  test("expire in the order of their ends after a blocked turn", async () => {
    const watched = new Watched();
    watched.watch(30, 10, 20, 10, 40);
    await vi.advanceTimersByTimeAsync(9);
    const spent = vi.spyOn(performance, "now").mockReturnValue(performance.now() + 26);
    await vi.advanceTimersByTimeAsync(1);
    expect(watched.late.map(([call]) => call)).toEqual([1, 3, 2, 0]);
    spent.mockRestore();
    await vi.advanceTimersByTimeAsync(30);
    expect(watched.late.map(([call]) => call)).toEqual([1, 3, 2, 0, 4]);
  });

  test("of thousands of calls cost one timer per deadline, and detect a late call", async () => {
    // What an earlier file has left running sets timers too.
    let made = 0;
    new LivingTimers((plain) => (run, delayMs) => {
      if (new Error().stack?.includes("at Alarm.") === true) made++;
      return plain(run, delayMs);
    });
    const watched = new Watched();
    for (let round = 0; round < 50; round++) {
      const ops = watched.watch(...new Array<number>(100).fill(100));
      for (const op of ops) {
        if (round !== 19 || op !== ops[63]) completeOp(op, undefined);
      }
      await vi.advanceTimersByTimeAsync(1);
    }
    await vi.advanceTimersByTimeAsync(500);
    expect(watched.late).toEqual([[1963, 119]]);
    expect([1, 2]).toContain(made);
  });

  test("expire while later calls complete, in any order", async () => {
    const watched = new Watched();
    const [first, second, third, other] = watched.watch(30, 30, 30, 60);
    completeOp(third!, undefined);
    completeOp(other!, undefined);
    await vi.advanceTimersByTimeAsync(29);
    expect([first, second].map((op) => op?.status)).toEqual(["waiting", "waiting"]);
    completeOp(second!, undefined);
    await vi.advanceTimersByTimeAsync(100);
    expect(watched.late).toEqual([[0, 30]]);
  });

  longTest("behave like one timer for each open call", async () => {
    const timers = new LivingTimers();
    for (let seed = 0; seed < 200; seed++) {
      const next = randomWords(seed);
      const watched = new Watched();
      const expected: [number, number][] = [];
      const dueMs: number[] = [];
      for (let step = 0; step < 60; step++) {
        const open = watched.calls.flatMap(({ op }, call) => (op.pending ? [call] : []));
        const chosen = open[next() % Math.max(1, open.length)];
        if (next() % 3 > 0) {
          const timeoutMs = [20, 20, 20, 7, 1 + (next() % 40)][next() % 5] as number;
          watched.watch(timeoutMs);
          dueMs.push(watched.nowMs + timeoutMs);
        } else if (next() % 2 > 0 && chosen !== undefined) {
          const { op } = watched.calls[chosen] as Posting;
          if (next() % 2 > 0) completeOp(op, undefined);
          else failOp(op, new Error("of its own"));
        } else {
          const byMs = watched.nowMs + (next() % 12);
          const due = open.filter((call) => (dueMs[call] as number) <= byMs);
          due.sort((a, b) => (dueMs[a] as number) - (dueMs[b] as number));
          expected.push(...due.map((call): [number, number] => [call, dueMs[call] as number]));
          await vi.advanceTimersByTimeAsync(byMs - watched.nowMs);
        }
        const late = [...watched.late].sort(([a, at], [b, by]) => at - by || a - b);
        expect(late).toEqual([...expected].sort(([a, at], [b, by]) => at - by || a - b));
        const isOpen = watched.calls.some(({ op }) => op.pending);
        expect(timers.count()).toBe(isOpen ? 1 : 0);
      }
      for (const { op } of watched.calls) completeOp(op, undefined);
    }
  });

  test("beyond the limit of the runtime's timers do not expire at once", async () => {
    const watched = new Watched();
    watched.watch(3e9);
    await vi.advanceTimersByTimeAsync(2 ** 31);
    expect(watched.late).toEqual([]);
    await vi.advanceTimersByTimeAsync(3e9 - 2 ** 31);
    expect(watched.late).toEqual([[0, 3e9]]);
  });

  test("do not expire early after an early timer", async () => {
    new LivingTimers((plain) => (run, delayMs) => plain(run, delayMs - 3));
    const watched = new Watched();
    watched.watch(20, 25);
    await vi.advanceTimersByTimeAsync(100);
    expect(watched.late).toEqual([
      [0, 20],
      [1, 25],
    ]);
  });
});

describe("calls that are late together", () => {
  /** Deadlines of calls that need a query first; records the queries and the end of querying. */
  function recordQueries() {
    const queried: Posting[] = [];
    const answers: (() => void)[] = [];
    const deadlines = new Deadlines((posting) => {
      queried.push(posting);
      return new Promise((resolve) => answers.push(resolve));
    });
    const calls = [10, 20, 20, 20].map(callWith);
    for (const call of calls) deadlines.watch(call);
    return { queried: queried, answers, calls };
  }

  test("are queried one after the other while they are open", async () => {
    const { queried, answers, calls } = recordQueries();
    const [, , third, fourth] = calls;
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 50);
    await vi.advanceTimersByTimeAsync(10);
    expect(queried).toEqual(calls.slice(0, 1));
    answers[0]?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(queried).toEqual(calls.slice(0, 2));
    failOp(third!.op, new Error("aborted"));
    answers[1]?.();
    await vi.advanceTimersByTimeAsync(100);
    expect(queried.slice(2)).toEqual([fourth]);
    vi.mocked(performance.now).mockRestore();
  });

  test("do not wait for a query about a completed call", async () => {
    const { queried, calls } = recordQueries();
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 50);
    await vi.advanceTimersByTimeAsync(10);
    completeOp(calls[0]!.op, undefined);
    await vi.advanceTimersByTimeAsync(0);
    expect(queried).toEqual(calls.slice(0, 2));
    vi.mocked(performance.now).mockRestore();
  });
});

describe("the timer", () => {
  test("keeps nothing alive without open deadlines, and is reused", async () => {
    const timers = new LivingTimers();
    const watched = new Watched();
    for (let call = 0; call < 20; call++) {
      const [op] = watched.watch(100);
      expect(timers.count()).toBe(1);
      completeOp(op!, undefined);
      expect(timers.count()).toBe(0);
      await vi.advanceTimersByTimeAsync(1);
    }
    expect(timers.made).toBe(1);
    await vi.advanceTimersByTimeAsync(200);
    expect(vi.getTimerCount()).toBe(0);
    watched.watch(10);
    await vi.advanceTimersByTimeAsync(10);
    expect(watched.late).toEqual([[20, 230]]);
  });

  test("is reset for an earlier deadline, also while it rests", async () => {
    const watched = new Watched();
    const [long] = watched.watch(500);
    watched.watch(40);
    await vi.advanceTimersByTimeAsync(100);
    completeOp(long!, undefined);
    watched.watch(30);
    await vi.advanceTimersByTimeAsync(1000);
    expect(watched.late).toEqual([
      [1, 40],
      [2, 130],
    ]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("runs no callback while it rests", async () => {
    const ring = vi.fn();
    const alarm = new Alarm(ring);
    alarm.ringBy(performance.now() + 10, performance.now());
    alarm.rest();
    await vi.advanceTimersByTimeAsync(20);
    expect(ring).not.toHaveBeenCalled();
  });

  test("is stopped on runtimes with timers that are numbers and cannot rest", async () => {
    new LivingTimers((plain) => (run, delayMs) => Number(plain(run, delayMs)) as never);
    const watched = new Watched();
    const [op] = watched.watch(100);
    expect(vi.getTimerCount()).toBe(1);
    completeOp(op!, undefined);
    expect(vi.getTimerCount()).toBe(0);
    watched.watch(10);
    await vi.advanceTimersByTimeAsync(10);
    expect(watched.late).toEqual([[1, 10]]);
  });
});

test.each([
  [[], [], "all ranks had made it"],
  [[1], [], "rank 1 had not made it"],
  [[1, 2], [2], "rank 1 had not made it, rank 2 did not answer, busy or lost"],
  [[1, 2], [1, 2], "ranks 1, 2 did not answer, busy or lost"],
])("of missing ranks %j, of which %j are silent: %s", (ranks, silent, why) => {
  expect(missingCause(ranks, silent)).toEqual({ ranks, why });
});

test("the cause of a timeout names the missing ranks of a session that knows no silent ones", async () => {
  const comm = { ranks: [4, 2, 7], local: [0] } as unknown as CommInfo;
  const found = { ranks: [2], haveDiverged: false };
  const job = { peers: { missingRanks: async () => found } } as unknown as JobSession;
  const posting = { op: { status: "submitted", rank: 0, call: 3 } } as unknown as Posting;
  const late = { job, comm } as Parameters<typeof timeoutCause>[0];
  expect(await timeoutCause(late, posting)).toEqual({
    ...{ ranks: [1], why: "rank 1 had not made it" },
  });
});

test.each([
  [{ ranks: [2], silent: [] }, "rank 1 had not made it"],
  [{ ranks: [2], silent: [2] }, "rank 1 did not answer, busy or lost"],
  [undefined, "rank 1 did not answer, busy or lost"],
])("the cause of a timeout of a message, of missing ends %j: %s", async (found, why) => {
  const comm = { ranks: [4, 2, 7], local: [0] } as unknown as CommInfo;
  const job = { peers: { missingEnds: async () => found } } as unknown as JobSession;
  const op = { status: "submitted", rank: 0, call: 3 };
  const posting = { op, peer: 1 } as unknown as Posting;
  const open = { queues: { batchOf: () => [] }, submitted: { submittedWith: () => [posting] } };
  const late = { job, comm, ...open } as unknown as Parameters<typeof timeoutCause>[0];
  expect(await timeoutCause(late, posting)).toEqual({ ranks: [1], why });
});
