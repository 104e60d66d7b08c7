/** Losses of ranks: the moment of their report. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Losses } from "../../../../src/backends/tcp/losses.ts";

const boundMs = 1_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setImmediate", "clearImmediate"] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe("a loss", () => {
  function lose(mayComplete: () => boolean) {
    const reported: number[] = [];
    const losses = new Losses(mayComplete, boundMs);
    losses.add(3, () => reported.push(3));
    return { losses, reported };
  }

  test("is reported behind what has arrived in this turn, where nothing completes without the rank", () => {
    const { reported } = lose(() => false);
    expect(reported).toEqual([]);
    vi.advanceTimersByTime(0);
    expect(reported).toEqual([3]);
  });

  test("waits for calls that may complete, and is reported once", () => {
    let isUnderWay = true;
    const { losses, reported } = lose(() => isUnderWay);
    vi.advanceTimersByTime(boundMs / 2);
    losses.review();
    vi.advanceTimersByTime(1);
    expect(reported).toEqual([]);
    isUnderWay = false;
    losses.review();
    vi.advanceTimersByTime(1);
    expect(reported).toEqual([3]);
    losses.review();
    vi.advanceTimersByTime(2 * boundMs);
    expect(reported).toEqual([3]);
  });

  test("waits for a bounded time", () => {
    const { reported } = lose(() => true);
    vi.advanceTimersByTime(boundMs - 1);
    expect(reported).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(reported).toEqual([3]);
  });

  test("is not reported once the session has closed", () => {
    const { losses, reported } = lose(() => false);
    losses.clear();
    vi.advanceTimersByTime(2 * boundMs);
    expect(reported).toEqual([]);
  });
});
