/** The store's barrier before ranks block: the ranks that pass it, and the reasons for those that wait. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Barrier } from "../../../src/job/rendezvous.ts";
import { Barriers } from "../../../src/job/waits.ts";
import { errorOf, place } from "./stores.ts";

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A meeting of some ranks, named after them. */
const of = (...ranks: number[]): Barrier => ({ key: ranks.join(">"), ranks });

/** Notes when a promise settles. */
function watch(promise: Promise<unknown>): { over: boolean } {
  const seen = { over: false };
  const settle = (): void => {
    seen.over = true;
  };
  promise.then(settle, settle);
  return seen;
}

describe("a barrier", () => {
  test("releases its ranks when all have arrived, without other queries", async () => {
    const [zero, one, two] = await (await place(4)).joinAll();
    const first = zero!.awaitBarriers([of(0, 2)]);
    const seen = watch(first);
    await one!.exchange("k", new Uint8Array(0), { timeoutMs: 30 }).catch(() => undefined);
    expect(seen.over).toBe(false);
    await Promise.all([first, two!.awaitBarriers([of(0, 2)])]);
  });

  test("may be repeated under the same key", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    for (let i = 0; i < 3; i++)
      await Promise.all([zero!.awaitBarriers([of(0, 1)]), one!.awaitBarriers([of(0, 1)])]);
    const late = watch(zero!.awaitBarriers([of(0, 1)], { timeoutMs: 5000 }));
    await pause(30);
    expect(late.over).toBe(false);
    await one!.awaitBarriers([of(0, 1)]);
  });

  test("holds a rank while another of its ranks waits for a third", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const waits = [zero!.awaitBarriers([of(0, 1)]), one!.awaitBarriers([of(0, 1), of(2, 1)])];
    const seen = waits.map(watch);
    await pause(40);
    expect(seen.map(({ over }) => over)).toEqual([false, false]);
    await Promise.all([...waits, two!.awaitBarriers([of(2, 1)])]);
  });

  test("ends at the deadline of a rank, which names the missing ranks, and the others wait on", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const all = of(0, 1, 2);
    const patient = one!.awaitBarriers([all]);
    const error = await errorOf(zero!.awaitBarriers([all], { timeoutMs: 60 }));
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0, ranks: [2] });
    expect(error.message).toContain("barrier: rank 2 did not arrive within 60 ms");
    const third = two!.awaitBarriers([all]);
    const seen = [patient, third].map(watch);
    await pause(40);
    expect(seen.map(({ over }) => over)).toEqual([false, false]);
    await Promise.all([zero!.awaitBarriers([all]), patient, third]);
  });

  test("is left by a signal, and the others wait for that rank again", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    expect(await zero!.awaitBarriers([of(0, 1)], { signal: AbortSignal.timeout(20) })).toBe(false);
    expect(await zero!.awaitBarriers([of(0, 1)], { signal: AbortSignal.abort() })).toBe(false);
    const seen = watch(one!.awaitBarriers([of(0, 1)]));
    await pause(40);
    expect(seen.over).toBe(false);
    expect(await zero!.awaitBarriers([of(0, 1)])).toBe(true);
  });

  test("succeeds for a rank that cancels after the others were released", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    const giveUp = new AbortController();
    const given = zero!.awaitBarriers([of(0, 1)], { signal: giveUp.signal });
    await one!.awaitBarriers([of(0, 1)]).then(() => giveUp.abort());
    expect(await given).toBe(true);
  });

  test("has a bound on the number of awaited ranks, with an error", async () => {
    const [zero] = await (await place(2)).joinAll();
    const many = (from: number, count: number): Barrier[] =>
      Array.from({ length: count }, (_, at) => ({ key: `${from + at}`, ranks: [0, 1] }));
    expect(await errorOf(zero!.awaitBarriers(many(0, 2 ** 14 + 1)))).toMatchObject({
      field: "barriers",
    });
    const giveUp = new AbortController();
    const open = zero!.awaitBarriers(many(0, 2 ** 14), { signal: giveUp.signal });
    expect((await errorOf(zero!.awaitBarriers(many(-1, 1)))).message).toContain(
      "at most 16384 barriers",
    );
    giveUp.abort();
    expect(await open).toBe(false);
  });

  test("fails for waits on a rank that leaves, or that was lost before, and only for those", async () => {
    const [zero, one, two, three] = await (await place(4)).joinAll();
    const waiting = errorOf(zero!.awaitBarriers([of(0, 1)]));
    const others = two!.awaitBarriers([of(2, 3)]);
    await one!.leave();
    expect(await waiting).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
    expect(await errorOf(zero!.awaitBarriers([of(0, 1)]))).toMatchObject({ ranks: [1] });
    await Promise.all([others, three!.awaitBarriers([of(2, 3)])]);
  });

  test("needs ranks of the job, and the waiting one among them", async () => {
    const [zero] = await (await place(2)).joinAll();
    for (const ranks of [[0, 2], [1], [0, -1], []]) {
      const error = await errorOf(zero!.awaitBarriers([{ key: "k", ranks }]));
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "ranks" });
    }
    const empty = await errorOf(zero!.awaitBarriers([{ key: "", ranks: [0, 1] }]));
    expect(empty).toMatchObject({ code: "ERR_COMM_ARG", field: "key" });
    await zero!.awaitBarriers([]);
  });
});

/** Ranks that may go: the fixed point of removing ranks that lack a partner. */
function mayGo(waiting: ReadonlyMap<number, readonly Barrier[]>): Set<number> {
  const left = new Map(waiting);
  const isThere = (rank: number, key: string): boolean =>
    left.get(rank)?.some((meeting) => meeting.key === key) === true;
  for (;;) {
    const lacking = [...left].filter(([, meetings]) =>
      meetings.some(({ key, ranks }) => ranks.some((rank) => !isThere(rank, key))),
    );
    if (lacking.length === 0) return new Set(left.keys());
    for (const [rank] of lacking) left.delete(rank);
  }
}

const size = 4;
const all = [of(0, 1), of(1, 2), of(2, 3), of(0, 3), of(0, 1, 2)];
const step = fc.record({
  rank: fc.nat(size - 1),
  meetings: fc.subarray(all, { minLength: 1 }),
  leaves: fc.boolean(),
});

test("ranks without a missing peer are released together", () => {
  let gone = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 10, maxLength: 40 }), (steps) => {
      const meetings = new Barriers();
      const waiting = new Map<number, readonly Barrier[]>();
      for (const [id, { rank, meetings: wanted, leaves }] of steps.entries()) {
        const own = wanted.filter(({ ranks }) => ranks.includes(rank));
        if (waiting.has(rank)) {
          if (!leaves) continue;
          for (const each of meetings.waiting((one) => one.rank === rank)) meetings.leave(each);
          waiting.delete(rank);
          continue;
        }
        waiting.set(rank, own);
        const timer = setTimeout(() => undefined, 0);
        const went = meetings.arrive({ rank, id, barriers: own, timer, value: undefined });
        const expected = mayGo(waiting);
        expect(new Set(went.map((each) => each.rank))).toEqual(expected);
        for (const each of went) waiting.delete(each.rank);
        expect(new Set(meetings.waiting(() => true).map((each) => each.rank))).toEqual(
          new Set(waiting.keys()),
        );
        gone += went.length > 1 ? 1 : 0;
      }
    }),
    { numRuns: 300 },
  );
  expect(gone).toBeGreaterThan(30);
});
