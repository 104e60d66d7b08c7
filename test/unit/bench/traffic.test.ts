import { InvalidArgumentError } from "twinccl";
import { heaviestRank, skewedTraffic, transposed } from "twinccl/bench";
import { describe, expect, test } from "vitest";
import { skewedCounts } from "../../../src/bench/traffic.ts";

describe("skewedTraffic", () => {
  test("spread 0 gives every pair the same", () => {
    expect(skewedTraffic(64, 4, 0, 1)).toEqual(Array.from({ length: 4 }, () => [16, 16, 16, 16]));
  });
  test("is about as heavy as requested, and deterministic", () => {
    for (const spread of [0.25, 0.5, 1]) {
      const traffic = skewedTraffic(100_000, 8, spread, 3);
      expect(Math.abs(heaviestRank(traffic) - 100_000)).toBeLessThanOrEqual(8);
      expect(skewedTraffic(100_000, 8, spread, 3)).toEqual(traffic);
      expect(skewedTraffic(100_000, 8, spread, 4)).not.toEqual(traffic);
    }
  });
  test("more spread is more unequal", () => {
    const least = [0, 0.3, 0.6, 1].map((spread) =>
      Math.min(...skewedTraffic(1_000_000, 8, spread, 0).flat()),
    );
    expect([...least].sort((a, b) => b - a)).toEqual(least);
    expect(new Set(least).size).toBe(4);
  });
  test("has whole counts of at least 0 for any number of elements", () => {
    for (let elements = 0; elements < 40; elements++) {
      for (const ranks of [1, 2, 3, 8]) {
        const counts = skewedTraffic(elements, ranks, 1, 0).flat();
        expect(counts.every((count) => Number.isInteger(count) && count >= 0)).toBe(true);
      }
    }
  });
  test.each([-0.1, 1.1, Number.NaN, null, "0.5", []])("refuses a spread of %j", (spread) => {
    expect(() => skewedTraffic(8, 2, spread as never, 0)).toThrow(InvalidArgumentError);
    expect(() => skewedCounts(8, 2, spread as never, 0)).toThrow(InvalidArgumentError);
  });
  test.each([
    ["elements", -5, 2],
    ["elements", Number.NaN, 2],
    ["ranks", 8, 0],
    ["ranks", 8, 2.5],
  ] as const)("refuses %s: %d elements of %d ranks", (field, elements, ranks) => {
    for (const counts of [skewedTraffic, skewedCounts]) {
      const fault = expect.objectContaining({ code: "ERR_COMM_ARG", field });
      expect(() => counts(elements, ranks, 0, 0)).toThrow(fault);
    }
  });
});

test("transposed", () => {
  expect(
    transposed([
      [1, 2],
      [3, 4],
    ]),
  ).toEqual([
    [1, 3],
    [2, 4],
  ]);
});

test("skewed counts add up", () => {
  for (const ranks of [1, 2, 7, 8]) {
    const counts = skewedCounts(1000, ranks, 0.8, 5);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1000);
  }
});
