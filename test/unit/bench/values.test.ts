/**
 * The ground for the oracle's trust: in whatever order contributions are folded, no partial result is rounded, so the
 * plain number that it expects is the only right answer.
 */
import { type DType, dtypeInfo, dtypes, type NamedReduceOp, namedReduceOps } from "twinccl";
import { describe, expect, test } from "vitest";
import {
  bitsToNumber,
  numberToBits,
  type SmallFloat,
} from "../../../src/algorithms/arithmetic/index.ts";
import { averageFactor } from "../../../src/bench/encode.ts";
import { mixedBits, reducedValues } from "../../../src/bench/values.ts";

const counts = [1, 2, 3, 5, 8, 16, 33];
const elements = Array.from({ length: 100 }, (_, index) => index * 37);

/** A number as the dtype holds it. */
function held(dtype: DType, value: number): number {
  const { kind, bytes, bits } = dtypeInfo[dtype];
  if (bits) return bitsToNumber(dtype as SmallFloat, numberToBits(dtype as SmallFloat, value));
  if (dtype === "float32") return Math.fround(value);
  if (dtype === "float64") return value;
  const wrap = kind === "signed" ? BigInt.asIntN : BigInt.asUintN;
  return Number.isInteger(value) ? Number(wrap(8 * bytes, BigInt(value))) : Number.NaN;
}

/** Folds in a random tree; every partial result that is not exact goes to `rounded`. */
function foldAnyhow(
  dtype: DType,
  op: NamedReduceOp,
  terms: readonly number[],
  seed: number,
  rounded: string[],
): number {
  const open = [...terms];
  for (let step = 0; open.length > 1; step++) {
    const [a] = open.splice(mixedBits(seed, 0, step) % open.length, 1) as [number];
    const [b] = open.splice(mixedBits(seed, 1, step) % open.length, 1) as [number];
    const folds = { sum: a + b, avg: a + b, prod: a * b, min: Math.min(a, b), max: Math.max(a, b) };
    const partial = folds[op];
    if (held(dtype, partial) !== partial) rounded.push(`${op} of ${a} and ${b}`);
    open.push(partial);
  }
  return open[0]!;
}

describe.each(dtypes)("%s", (dtype) => {
  test.each(namedReduceOps)("%s: no partial result is rounded", (op) => {
    const isFloat = dtypeInfo[dtype].kind === "float";
    const faults: string[] = [];
    for (const ranks of counts) {
      const scalar = averageFactor(dtype, ranks);
      const { input, expected } = reducedValues(dtype, op, ranks, 7, scalar);
      for (const index of elements) {
        const inputs = Array.from({ length: ranks }, (_, rank) => input(rank, index));
        const scaled = op === "avg" && isFloat ? inputs.map((value) => value * scalar) : inputs;
        const folded = foldAnyhow(dtype, op, scaled, index, faults);
        const result = op === "avg" && !isFloat ? Math.trunc(folded / ranks) : folded;
        const right = expected(index);
        if (inputs.some((value) => held(dtype, value) !== value)) faults.push(`inputs ${inputs}`);
        if (right !== result) faults.push(`expected ${right}, folded ${result}`);
        // A zero of the wrong sign would be a wrong bit, so none is ever expected.
        if (Object.is(right, -0) || held(dtype, right) !== right) faults.push(`expected ${right}`);
      }
    }
    expect(faults).toEqual([]);
  });
  test("every rank matters, and so does its place", () => {
    const { input } = reducedValues(dtype, "sum", 8, 0, 1);
    const rows = Array.from({ length: 8 }, (_, rank) =>
      elements.map((index) => input(rank, index)),
    );
    expect(rows.every((row) => row.some((value) => value !== 0))).toBe(true);
    expect(new Set(rows.map(String)).size).toBe(8);
  });
});

test("the average's factor is 1/n as the dtype holds it", () => {
  expect(averageFactor("float64", 3)).toBe(1 / 3);
  expect(averageFactor("float32", 3)).toBe(Math.fround(1 / 3));
  expect(averageFactor("float8e4m3", 3)).toBe(0.34375);
  expect(averageFactor("float8e5m2", 3)).toBe(0.3125);
  expect(averageFactor("bfloat16", 8)).toBe(0.125);
});
