/**
 * Exhaustive in one operand: all 65,536 patterns against some 200 chosen ones, for every operator.
 *
 * The expected bits come from a merge: for a fixed second operand the exact results grow with the
 * first one, so walking both the operands and the boundaries between neighbouring results in order
 * finds every rounding without computing one. The BigInt oracle judges a random sample as well.
 */
import { f16round } from "@petamoriken/float16";
import { describe, expect, test } from "vitest";
import {
  averageScalar,
  bitsToNumber,
  foldFor,
  numberToBits,
  roundScalar,
} from "../../../../src/algorithms/arithmetic/index.ts";
import type { ReduceOp } from "../../../../src/api/reduce-op.ts";
import {
  decode,
  type Exact,
  oracleFormats,
  oracleScalar,
} from "../../../../src/testing/oracle/rounding.ts";
import { expectOracle, randomWords, specialBits, wildBits } from "./lane-bits.ts";

type Half = "float16" | "bfloat16";
const halves: Half[] = ["float16", "bfloat16"];
const every = Uint16Array.from({ length: 0x10000 }, (_, bits) => bits);

function toNumber(exact: Exact): number {
  if (exact.kind === "nan") return Number.NaN;
  if (exact.kind === "infinity") return exact.negative ? -Infinity : Infinity;
  if (exact.kind === "zero") return exact.negative ? -0 : 0;
  return Number(exact.units) * 2 ** exact.exponent;
}

/** Values, magnitudes in order and boundaries of one format, by the oracle's decoding. */
function tablesOf(dtype: Half) {
  const format = oracleFormats[dtype];
  const values = Float64Array.from(every, (bits) => toNumber(decode(format, BigInt(bits))));
  const most = Number(format.maxBits);
  // Boundary k lies between magnitudes k and k + 1, the last one below what infinity stands for.
  const boundaries = Float64Array.from({ length: most + 1 }, (_, k) => {
    const next = k < most ? values[k + 1]! : 2 * values[most]! - values[most - 1]!;
    return values[k]! / 2 + next / 2;
  });
  // All finite patterns in order of value: negative ones first, largest size first.
  const ordered = new Uint16Array(2 * (most + 1));
  for (let k = 0; k <= most; k++) {
    ordered[most - k] = 0x8000 | k;
    ordered[most + 1 + k] = k;
  }
  return { values, boundaries, most, ordered };
}

const tables = { float16: tablesOf("float16"), bfloat16: tablesOf("bfloat16") };

/** True when a + b lies beyond `boundary`, or on it and `tie` holds; exact for any doubles. */
function reaches(a: number, b: number, boundary: number, tie: boolean): boolean {
  const d = boundary - b;
  if (a !== d) return a > d;
  // The difference itself may have been rounded: which way decides.
  const part = d - boundary;
  const lost = boundary - (d - part) + (-b - part);
  return lost === 0 ? tie : lost < 0;
}

/**
 * Bits of round(a(x) + b) for every finite x, where a never falls as x grows (or never rises:
 * `falling`).
 */
function mergeRounded(dtype: Half, a: Float64Array, b: number, falling: boolean): Uint16Array {
  const { boundaries, most, ordered } = tables[dtype];
  const result = new Uint16Array(0x10000);
  // Signed position of the result: its magnitude's pattern, negative below zero.
  let position = -(most + 1);
  for (let i = 0; i < ordered.length; i++) {
    const x = ordered[falling ? ordered.length - 1 - i : i]!;
    const addend = a[x]!;
    if (!Number.isFinite(addend)) continue;
    while (position <= most) {
      // The boundary above this position, and whether a tie moves up to the even neighbour.
      const boundary = position >= 0 ? boundaries[position]! : -boundaries[-position - 1]!;
      if (!reaches(addend, b, boundary, (position & 1) !== 0)) break;
      position += 1;
    }
    const sum = addend + b;
    const negative = position < 0 || (position === 0 && (sum < 0 || Object.is(sum, -0)));
    result[x] = (negative ? 0x8000 : 0) | Math.abs(position);
  }
  return result;
}

/** Some 200 second operands: specials, and random ones. */
function chosen(dtype: Half): number[] {
  const next = randomWords(dtype.length);
  const random = Array.from({ length: 176 }, () => next() & 0xffff);
  return [...specialBits(dtype).map(Number), ...random];
}

/** `left ∘ right` (without `begin`: left is a partial), canonical. */
function hop(
  dtype: Half,
  op: ReduceOp,
  ranks: number,
  fused: boolean,
  partial: Uint16Array,
  x: Uint16Array,
) {
  const fold = foldFor(dtype, op, ranks, fused ? "fused" : "separate");
  const acc = partial.slice();
  fold.addContribution(acc, 0, x, 0, x.length);
  fold.finish(acc, 0, x.length);
  return acc;
}

function expectBits(what: string, actual: Uint16Array, expected: Uint16Array): void {
  if (Buffer.from(actual.buffer).equals(Buffer.from(expected.buffer))) return;
  const x = actual.findIndex((bits, i) => bits !== expected[i]);
  expect(actual[x]!.toString(16), `${what}, x = ${x.toString(16)}`).toBe(expected[x]!.toString(16));
}

/** Bits when an operand is infinite or NaN: whatever doubles say. */
function unbounded(dtype: Half, result: number): number {
  if (Number.isNaN(result)) return 0x7fff;
  return (result < 0 ? 0x8000 : 0) | (tables[dtype].most + 1);
}

/** Bits of round(a(x) + b) for all x: merged where everything is finite, else what doubles say. */
function rounded(dtype: Half, a: Float64Array, b: number, falling: boolean): Uint16Array {
  const bounded = Number.isFinite(b);
  const result = bounded ? mergeRounded(dtype, a, b, falling) : new Uint16Array(0x10000);
  for (let x = 0; x < result.length; x++) {
    if (!bounded || !Number.isFinite(a[x])) result[x] = unbounded(dtype, a[x]! + b);
  }
  return result;
}

describe.each(halves)("%s", (dtype) => {
  const { values } = tables[dtype];

  test("sum with every pattern, from either side", () => {
    for (const y of chosen(dtype)) {
      const constant = new Uint16Array(0x10000).fill(y);
      const expected = rounded(dtype, values, values[y]!, false);
      const what = `sum with ${y.toString(16)}`;
      expectBits(what, hop(dtype, "sum", 2, true, constant, every), expected);
      expectBits(what, hop(dtype, "sum", 2, true, every, constant), expected);
    }
  });

  test("product with every pattern, from either side", () => {
    const products = new Float64Array(0x10000);
    for (const y of chosen(dtype)) {
      const constant = new Uint16Array(0x10000).fill(y);
      for (let x = 0; x < products.length; x++) products[x] = values[x]! * values[y]!;
      const expected = rounded(dtype, products, -0, y >= 0x8000);
      const what = `product with ${y.toString(16)}`;
      expectBits(what, hop(dtype, "prod", 2, true, constant, every), expected);
      expectBits(what, hop(dtype, "prod", 2, true, every, constant), expected);
    }
  });

  test.each(["min", "max"] as const)("%s with every pattern, from either side", (op) => {
    const rank = (bits: number): number => (bits & 0x8000 ? -1 - (bits & 0x7fff) : bits);
    const expected = new Uint16Array(0x10000);
    for (const y of chosen(dtype)) {
      const constant = new Uint16Array(0x10000).fill(y);
      const [rankY, nanY] = [rank(y), Number.isNaN(values[y])];
      for (let x = 0; x < expected.length; x++) {
        if (Number.isNaN(values[x])) expected[x] = nanY ? 0x7fff : y;
        else expected[x] = nanY || rank(x) < rankY === (op === "min") ? x : y;
      }
      expectBits(op, hop(dtype, op, 2, true, constant, every), expected);
      expectBits(op, hop(dtype, op, 2, true, every, constant), expected);
    }
  });

  const scaled: [ReduceOp, number][] = [3, 5, 8].map((ranks) => ["avg", ranks]);
  scaled.push([{ preMul: 0.3 }, 2], [{ preMul: -1.7 }, 2]);
  test.each(scaled)("%o over %i ranks: fused, separate, and begun", (op, ranks) => {
    const bits = oracleScalar(dtype, op as "avg" | { preMul: number }, ranks);
    const scalar = toNumber(decode(oracleFormats[dtype], bits));
    const falling = scalar < 0;
    const products = values.map((x) => x * scalar);
    const productBits = rounded(dtype, products, -0, falling);
    const roundedProducts = Float64Array.from(productBits, (product) => values[product]!);

    const begun = new Uint16Array(0x10000);
    const fold = foldFor(dtype, op, ranks, "fused");
    fold.begin(begun, 0, every, 0, begun.length);
    fold.finish(begun, 0, begun.length);
    expectBits("begin", begun, productBits);

    const partials = chosen(dtype);
    // The rule is one; two scalars see all partials, the others a part of them.
    const some = ranks === 3 || falling ? partials : partials.filter((_, i) => i % 4 === 0);
    for (const [i, y] of some.entries()) {
      const constant = new Uint16Array(0x10000).fill(y);
      const once = rounded(dtype, products, values[y]!, falling);
      expectBits(`fused on ${y}`, hop(dtype, op, ranks, true, constant, every), once);
      // Two plain roundings, each of them tested above: a few partials will do.
      if (i % 8 !== 0) continue;
      const twice = rounded(dtype, roundedProducts, values[y]!, falling);
      expectBits(`separate on ${y}`, hop(dtype, op, ranks, false, constant, every), twice);
    }
  });

  test("random folds of four agree with the BigInt oracle", () => {
    const columns = [1, 2, 3, 4].map((seed) => wildBits(dtype, 6_000, seed));
    for (const op of ["sum", "prod", "min", "max", "avg", { preMul: 3.1 }] as ReduceOp[]) {
      expectOracle(dtype, op, 7, "fused", columns);
      expectOracle(dtype, op, 7, "separate", columns);
    }
  });

  test("every pattern survives decoding and encoding", () => {
    for (const bits of every) {
      const value = bitsToNumber(dtype, bits);
      if (!Object.is(value, values[bits])) expect(value, bits.toString(16)).toBe(values[bits]);
      const back = Number.isNaN(value) ? 0x7fff : bits;
      if (numberToBits(dtype, value) !== back) expect(numberToBits(dtype, value)).toBe(back);
    }
  });

  test("doubles just beside every boundary round to the right side", () => {
    const { boundaries } = tables[dtype];
    boundaries.forEach((boundary, k) => {
      const beside = boundary * 2 ** -52;
      for (const sign of [1, -1]) {
        const bit = sign < 0 ? 0x8000 : 0;
        const even = k % 2 === 0 ? k : k + 1;
        const got = [boundary - beside, boundary, boundary + beside].map((x) =>
          numberToBits(dtype, sign * x),
        );
        if (got[0] !== (bit | k) || got[1] !== (bit | even) || got[2] !== (bit | (k + 1))) {
          expect(got, `around ${boundary}`).toEqual([bit | k, bit | even, bit | (k + 1)]);
        }
      }
    });
  });
});

test("float16 rounds doubles as @petamoriken/float16 does", () => {
  const next = randomWords(16);
  for (let i = 0; i < 200_000; i++) {
    const x = (next() / 2 ** 31 - 1 + next() / 2 ** 63) * 2 ** ((next() % 48) - 28);
    const rounded = bitsToNumber("float16", numberToBits("float16", x));
    if (!Object.is(rounded, f16round(x))) expect(rounded, `${x}`).toBe(f16round(x));
    if (roundScalar("float16", x) !== rounded) expect(roundScalar("float16", x)).toBe(rounded);
  }
});

test("the worked examples of section 5.1: every hop rounds to half", () => {
  const sum = (numbers: number[]): number => {
    const fold = foldFor("float16", "sum", numbers.length, "fused");
    const sources = numbers.map((x) => Uint16Array.of(numberToBits("float16", x)));
    const acc = new Uint16Array(1);
    fold.chain(
      acc,
      0,
      sources,
      numbers.map(() => 0),
      1,
    );
    return bitsToNumber("float16", acc[0]!);
  };
  expect(sum([1, 1, 2048])).toBe(2050);
  expect(sum([2048, 1, 1])).toBe(2048);
  expect(averageScalar("float16", 3)).toBe(bitsToNumber("float16", 0x3555));
});
