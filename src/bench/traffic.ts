/** The counts between the ranks of an all-to-allv: a skewed, deterministic traffic matrix. */

import { assertArgument, assertCounts } from "../algorithms/arguments.ts";
import { InvalidArgumentError } from "../api/index.ts";
import { largest } from "../api/largest.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { mixedBits } from "./values.ts";

/** Row i holds the elements that rank i sends to each rank. */
export type TrafficMatrix = readonly (readonly number[])[];

/**
 * A matrix with a heaviest rank that sends, or receives, about `elements` elements.
 *
 * `spread` makes the pairs unequal: 0 gives every pair the same, 1 draws each pair's share from nearly nothing
 * to all. The draw depends on the seed and the pair only, so every size of a sweep has the same shape of traffic.
 */
export function skewedTraffic(
  elements: number,
  ranks: number,
  spread: number,
  seed: number,
): TrafficMatrix {
  assertTraffic(elements, ranks, spread);
  const shares = Array.from({ length: ranks }, (_, from) =>
    Array.from({ length: ranks }, (_, to) => shareOf(from * ranks + to, spread, seed)),
  );
  const unit = elements / largest(sums(shares));
  return shares.map((row, from) => roundedRow(row, from, unit));
}

/** Lengths of the ranks' blocks: `elements` in all, unequal by `spread`. */
export function skewedCounts(
  elements: number,
  ranks: number,
  spread: number,
  seed: number,
): readonly number[] {
  assertTraffic(elements, ranks, spread);
  const shares = Array.from({ length: ranks }, (_, rank) => shareOf(rank, spread, seed));
  const unit = elements / shares.reduce((total, share) => total + share, 0);
  return roundedRow(shares, 0, unit);
}

/**
 * Elements that the heaviest rank sends or receives.
 *
 * @throws InvalidArgumentError for what is no square of counts.
 */
export function heaviestRank(traffic: TrafficMatrix): number {
  assertMatrix("heaviestRank", traffic);
  return largest(sums(traffic), 0);
}

/**
 * The matrix with rows and columns exchanged: row i holds what rank i receives.
 *
 * @throws InvalidArgumentError for what is no square of counts.
 */
export function transposed(traffic: TrafficMatrix): TrafficMatrix {
  assertMatrix("transposed", traffic);
  return columns(traffic);
}

function assertMatrix(subject: string, traffic: TrafficMatrix): void {
  const needed = "a row of counts for each rank";
  assertArgument(Array.isArray(traffic), subject, "traffic", traffic, needed);
  for (const [rank, row] of traffic.entries())
    assertCounts(subject, `traffic[${rank}]`, row, traffic.length);
}

function columns(matrix: TrafficMatrix): TrafficMatrix {
  return matrix.map((_, to) => matrix.map((row) => row[to] ?? 0));
}

/** A number above 0 and up to 1: the share of one block. */
function shareOf(block: number, spread: number, seed: number): number {
  return 1 - spread * (mixedBits(seed, block, 0x5eed) / 2 ** 32);
}

/** Refuses values that are not between 0 and 1. */
export function assertSpread(spread: number): void {
  if (Number.isFinite(spread) && spread >= 0 && spread <= 1) return;
  throw new InvalidArgumentError(
    { headline: `spread: found ${textOf(spread)}, needs a number from 0 to 1` },
    { field: "spread" },
  );
}

function assertTraffic(elements: number, ranks: number, spread: number): void {
  assertSpread(spread);
  const refuse = (field: string, value: number, needed: string): never => {
    throw invalid("traffic", field, textOf(value), needed);
  };
  if (!Number.isSafeInteger(ranks) || ranks < 1) refuse("ranks", ranks, "an integer of at least 1");
  if (!Number.isSafeInteger(elements) || elements < 0) {
    refuse("elements", elements, "an integer of at least 0");
  }
}

/**
 * Whole counts that add up to the rounded sum of the row: running totals are rounded, so that errors do not accumulate. Each
 * row starts at another column; otherwise all rows of a small matrix would round up in the same one.
 */
function roundedRow(row: readonly number[], start: number, unit: number): number[] {
  const counts = new Array<number>(row.length).fill(0);
  let total = 0;
  let given = 0;
  for (let step = 0; step < row.length; step++) {
    const to = (start + step) % row.length;
    total += (row[to] ?? 0) * unit;
    counts[to] = Math.round(total) - given;
    given = Math.round(total);
  }
  return counts;
}

/** Sums of all rows and all columns. */
function sums(matrix: TrafficMatrix): number[] {
  const sum = (row: readonly number[]): number => row.reduce((total, count) => total + count, 0);
  return [...matrix.map(sum), ...columns(matrix).map(sum)];
}
