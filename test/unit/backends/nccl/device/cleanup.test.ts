/** Giving things back: one failure keeps nothing else, and a bounded wait leaves no timer and no listener behind. */
import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { runAll } from "../../../../../src/api/run-all.ts";
import { settlesWithin } from "../../../../../src/job/async.ts";
import { LivingTimers } from "../../../../support/living-timers.ts";

const hourMs = 3_600_000;
const never = new Promise<never>(() => undefined);

test("every step runs, and the first error is thrown", () => {
  const done: number[] = [];
  const steps = [0, 1, 2, 3].map((at) => () => {
    done.push(at);
    if (at % 2 === 1) throw new Error(`step ${at}`);
  });
  expect(() => runAll(steps)).toThrow("step 1");
  expect(done).toEqual([0, 1, 2, 3]);
});

describe("a bounded wait", () => {
  test.each<[string, () => Promise<unknown>]>([
    ["is done", () => Promise.resolve("anything")],
    ["fails", () => Promise.reject(new Error("of no interest"))],
  ])("for what %s ends with it, and leaves no timer", async (_, begin) => {
    const timers = new LivingTimers();
    const { signal } = new AbortController();
    expect(await settlesWithin(hourMs, begin(), signal)).toBe(true);
    expect(timers.made).toBe(1);
    expect(timers.count(hourMs)).toBe(0);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("ends at its bound, at its abort, and at once after an earlier abort", async () => {
    const timers = new LivingTimers();
    expect(await settlesWithin(1, never)).toBe(false);
    const calledOff = new AbortController();
    const waiting = settlesWithin(hourMs, never, calledOff.signal);
    calledOff.abort();
    expect(await waiting).toBe(false);
    expect(await settlesWithin(hourMs, never, calledOff.signal)).toBe(false);
    expect(timers.count(hourMs)).toBe(0);
    expect(getEventListeners(calledOff.signal, "abort")).toEqual([]);
  });
});
