/**
 * Raw bits in and out of lanes, random patterns and special values: what the arithmetic tests
 * share.
 */
import { expect } from "vitest";
import type { Lanes, ScalarRounding } from "../../../../src/algorithms/arithmetic/index.ts";
import { foldFor, lanesOf } from "../../../../src/algorithms/arithmetic/index.ts";
import { bytesOf, type DType } from "../../../../src/api/dtype.ts";
import { type ReduceOp, reduceOpName } from "../../../../src/api/reduce-op.ts";
import { oracleFold } from "../../../../src/testing/oracle/rounding.ts";

/** Lanes of freshly allocated memory that hold the given bits. */
export function lanesFrom(dtype: DType, bits: readonly bigint[]): Lanes {
  const width = bytesOf(dtype);
  const view = new DataView(new ArrayBuffer(bits.length * width));
  bits.forEach((value, i) => {
    if (width === 1) view.setUint8(i, Number(value));
    else if (width === 2) view.setUint16(2 * i, Number(value), true);
    else if (width === 4) view.setUint32(4 * i, Number(value), true);
    else view.setBigUint64(8 * i, value, true);
  });
  return lanesOf(dtype, view.buffer, 0, view.byteLength);
}

/** The bits of every element. */
export function bitsOf(dtype: DType, lanes: Lanes): bigint[] {
  const width = bytesOf(dtype);
  const view = new DataView(lanes.buffer, lanes.byteOffset, lanes.byteLength);
  return Array.from({ length: lanes.byteLength / width }, (_, i) => {
    if (width === 1) return BigInt(view.getUint8(i));
    if (width === 2) return BigInt(view.getUint16(2 * i, true));
    if (width === 4) return BigInt(view.getUint32(4 * i, true));
    return view.getBigUint64(8 * i, true);
  });
}

/** Bits of `begin`, `addContribution` ..., `finish` over columns of contributions. */
export function foldByHops(
  dtype: DType,
  op: ReduceOp,
  ranks: number,
  rounding: ScalarRounding,
  columns: readonly (readonly bigint[])[],
): bigint[] {
  const fold = foldFor(dtype, op, ranks, rounding);
  const count = columns[0]!.length;
  const acc = lanesFrom(dtype, new Array<bigint>(count).fill(0n));
  columns.forEach((column, k) => {
    const source = lanesFrom(dtype, column);
    if (k === 0) fold.begin(acc, 0, source, 0, count);
    else fold.addContribution(acc, 0, source, 0, count);
  });
  fold.finish(acc, 0, count);
  return bitsOf(dtype, acc);
}

/** Folds the columns and compares every element with the oracle. */
export function expectOracle(
  dtype: DType,
  op: ReduceOp,
  ranks: number,
  rounding: ScalarRounding,
  columns: readonly (readonly bigint[])[],
): void {
  const actual = foldByHops(dtype, op, ranks, rounding, columns);
  for (let i = 0; i < actual.length; i++) {
    const contributions = columns.map((column) => column[i]!);
    const expected = oracleFold({ dtype, op, ranks, rounding, contributions });
    if (actual[i] === expected) continue;
    const inputs = contributions.map(hex).join(" ");
    expect(hex(actual[i]!), `${dtype} ${reduceOpName(op)} ${rounding} of ${inputs}`).toBe(
      hex(expected),
    );
  }
}

/** Bits for a message. */
export function hex(bits: bigint): string {
  return `0x${bits.toString(16)}`;
}

/** A seeded source of 32 random bits. */
export function randomWords(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 0;
  };
}

/** Random bit patterns: every exponent, NaN, infinities and subnormals among them. */
export function wildBits(dtype: DType, count: number, seed: number): bigint[] {
  const next = randomWords(seed);
  const width = 8 * bytesOf(dtype);
  return Array.from({ length: count }, () => {
    const low = BigInt(next());
    return BigInt.asUintN(width, width === 64 ? (BigInt(next()) << 32n) | low : low);
  });
}

/**
 * Zeros, ones and their neighbours, the ends of the subnormals, of the normals, and what lies
 * beyond.
 */
export function specialBits(dtype: DType): bigint[] {
  const width = 8 * bytesOf(dtype);
  const sign = 1n << BigInt(width - 1);
  const fraction = {
    float16: 10,
    bfloat16: 7,
    float32: 23,
    float64: 52,
    float8e4m3: 3,
    float8e5m2: 2,
  };
  if (!(dtype in fraction)) {
    const all = (1n << BigInt(width)) - 1n;
    return [0n, 1n, 2n, 3n, all, all - 1n, sign, sign + 1n, sign - 1n, sign - 2n, all / 3n];
  }
  const one = 1n << BigInt(fraction[dtype as keyof typeof fraction]);
  const exponents = sign / one;
  const unit = (exponents / 2n - 1n) * one;
  const infinity = dtype === "float8e4m3" ? 0x7fn : sign - one;
  const sizes = [0n, 1n, 2n, one - 1n, one, one + 1n, unit - 1n, unit, unit + 1n, unit + one / 2n];
  sizes.push(infinity - 2n, infinity - 1n, infinity, sign - 1n, infinity + one / 2n, sign - 2n);
  const unique = [...new Set(sizes.filter((size) => size < sign))];
  return unique.flatMap((size) => [size, size | sign]);
}

/** All pairs of two lists, as two columns. */
export function pairs(left: readonly bigint[], right: readonly bigint[]): [bigint[], bigint[]] {
  return [left.flatMap((a) => right.map(() => a)), left.flatMap(() => right)];
}
