/** The ratio of one peer's time to another's. */
import { expect, test } from "vitest";

type Row = { peers: Record<string, { median_us: number; turns_us: readonly number[] }> };
const url = new URL("../../../bench/gpu/ratio.mjs", import.meta.url).href;
const { ratioOf } = (await import(url)) as {
  ratioOf(row: Row, ours: string, theirs: string): number | undefined;
};

const row = (ours: readonly number[], theirs: readonly number[]): Row => ({
  peers: {
    ours: { median_us: 5, turns_us: ours },
    theirs: { median_us: 4, turns_us: theirs },
  },
});

test("is the middle ratio of neighbouring turns", () => {
  expect(ratioOf(row([4, 9, 2], [2, 3, 4]), "ours", "theirs")).toBe(2);
});

test("is the mean of two middle ratios", () => {
  const ratio = ratioOf(row([1, 8, 2, 90], [1, 2, 2, 3]), "ours", "theirs");
  const inverse = ratioOf(row([1, 2, 2, 3], [1, 8, 2, 90]), "ours", "theirs");
  expect(ratio).toBeCloseTo(2, 12);
  expect(inverse).toBeCloseTo(1 / 2, 12);
});

test("is that of the medians where turns were not kept, and empty where one was not run", () => {
  expect(ratioOf(row([], []), "ours", "theirs")).toBe(1.25);
  expect(ratioOf(row([1], [1]), "ours", "torch")).toBeUndefined();
});
