/**
 * The two 1-byte floats: every operator is a table of 64 KiB, one result for each pair of operands.
 *
 * A hop widens both operands to float16, computes there, and converts back, saturating. The tables
 * are filled that way on first use, so the loops only look up results. Because the conversion
 * saturates, infinities of e5m2 become its largest value in any hop, even in a minimum.
 */
import { canonicalise8, chainByOne, type FoldMethods, type Hop } from "./fold.ts";
import { bitsToNumber, numberToBits } from "./small-float.ts";

/** The two 1-byte formats. */
export type Float8DType = "float8e4m3" | "float8e5m2";

/** Operators that a table holds. */
export type Float8Operator = "sum" | "prod" | "min" | "max";

const operators: { readonly [O in Float8Operator]: (a: number, b: number) => number } = {
  sum: (a, b) => a + b,
  prod: (a, b) => a * b,
  // A NaN loses to a number.
  min: (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b)),
  max: (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b)),
};

/** A fold of 1-byte floats by a table. */
export function float8Fold(dtype: Float8DType, operator: Float8Operator): FoldMethods {
  const table = tableOf(dtype, operator);
  const hop: Hop<Uint8Array> = (acc, accAt, source, sourceAt, count) =>
    lookUp(acc, accAt, source, sourceAt, count, table);
  return methods(dtype, copy, hop, hop);
}

/** Sum of 1-byte floats, each multiplied by `scalar` and rounded to the format first. */
export function float8ScaledSum(dtype: Float8DType, scalar: number): FoldMethods {
  const table = tableOf(dtype, "sum");
  const scaled = new Uint8Array(0x100);
  for (let bits = 0; bits < scaled.length; bits++) {
    // The product is rounded to float16 first, as `numberToBits` does.
    scaled[bits] = numberToBits(dtype, bitsToNumber(dtype, bits) * scalar);
  }
  const begin: Hop<Uint8Array> = (acc, accAt, source, sourceAt, count) => {
    for (let i = 0; i < count; i++)
      acc[accAt + i] = scaled[source[sourceAt + i] as number] as number;
  };
  const hop: Hop<Uint8Array> = (acc, accAt, source, sourceAt, count) =>
    lookUpScaled(acc, accAt, source, sourceAt, count, table, scaled);
  const join: Hop<Uint8Array> = (acc, accAt, source, sourceAt, count) =>
    lookUp(acc, accAt, source, sourceAt, count, table);
  return methods(dtype, begin, hop, join);
}

function methods(
  dtype: Float8DType,
  begin: Hop<Uint8Array>,
  hop: Hop<Uint8Array>,
  join: Hop<Uint8Array>,
): FoldMethods {
  const last = dtype === "float8e4m3" ? 0x7e : 0x7c;
  const finish = (acc: Uint8Array, accAt: number, count: number): void =>
    canonicalise8(acc, accAt, count, last);
  const passes = { begin, addContribution: hop, addPartial: join, finish };
  return { ...passes, chain: chainByOne(begin, hop) };
}

function copy(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
): void {
  acc.set(source.subarray(sourceAt, sourceAt + count), accAt);
}

function lookUp(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
  table: Uint8Array,
): void {
  for (let i = 0; i < count; i++) {
    const pair = ((acc[accAt + i] as number) << 8) | (source[sourceAt + i] as number);
    acc[accAt + i] = table[pair] as number;
  }
}

function lookUpScaled(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
  table: Uint8Array,
  scaled: Uint8Array,
): void {
  for (let i = 0; i < count; i++) {
    const product = scaled[source[sourceAt + i] as number] as number;
    acc[accAt + i] = table[((acc[accAt + i] as number) << 8) | product] as number;
  }
}

const tables = new Map<string, Uint8Array>();

/** The result of every pair, at `a * 256 + b`. */
function tableOf(dtype: Float8DType, operator: Float8Operator): Uint8Array {
  const key = `${dtype} ${operator}`;
  const known = tables.get(key);
  if (known) return known;
  const table = new Uint8Array(0x10000);
  const values = new Float64Array(0x100);
  for (let bits = 0; bits < values.length; bits++) values[bits] = bitsToNumber(dtype, bits);
  const apply = operators[operator];
  for (let pair = 0; pair < table.length; pair++) {
    const exact = apply(values[pair >> 8] as number, values[pair & 0xff] as number);
    table[pair] = numberToBits(dtype, exact);
  }
  tables.set(key, table);
  return table;
}
