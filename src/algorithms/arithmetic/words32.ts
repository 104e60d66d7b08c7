/**
 * int32 and uint32: they wrap at 32 bits, in lanes that are signed for both.
 *
 * Sum and product have the same bits either way. Comparing flips the sign bit of both operands
 * where the type is unsigned, and the division that ends an average reads the type's own value.
 */
import { type Chain, chainByFour, chainByOne, type FoldMethods, type Hop } from "./fold.ts";

type WordHop = Hop<Int32Array>;

/** Sum of words, and the average that divides it by `ranks` at the end. */
export function word32Sum(average?: {
  readonly ranks: number;
  readonly signed: boolean;
}): FoldMethods {
  const passes = { two: addTwo, four: addFour, fourMore: addFourMore };
  const sum = methods(copy, add, add, chainByFour(copy, add, passes));
  if (average === undefined) return sum;
  const { ranks, signed } = average;
  const finish = (acc: Int32Array, accAt: number, count: number): void =>
    divide(acc, accAt, count, ranks, signed);
  return { ...sum, finish };
}

/** Product of words. */
export function word32Prod(): FoldMethods {
  return methods(copy, multiply, multiply, chainByOne(copy, multiply));
}

/** Minimum or maximum of words. */
export function word32Extreme(which: "min" | "max", signed: boolean): FoldMethods {
  // Complementing both operands turns a minimum into a maximum.
  const flip = (signed ? 0 : 1 << 31) ^ (which === "max" ? -1 : 0);
  const pick: WordHop = (acc, accAt, source, sourceAt, count) =>
    takeMin(acc, accAt, source, sourceAt, count, flip);
  return methods(copy, pick, pick, chainByOne(copy, pick));
}

/** Sum of words that are each multiplied by `scalar` first. */
export function word32ScaledSum(scalar: number): FoldMethods {
  const begin: WordHop = (acc, accAt, source, sourceAt, count) =>
    scale(acc, accAt, source, sourceAt, count, scalar);
  const hop: WordHop = (acc, accAt, source, sourceAt, count) =>
    addScaled(acc, accAt, source, sourceAt, count, scalar);
  return methods(begin, hop, add, chainByOne(begin, hop));
}

function methods(
  begin: WordHop,
  addContribution: WordHop,
  addPartial: WordHop,
  chain: Chain<Int32Array>,
): FoldMethods {
  return { begin, addContribution, addPartial, chain, finish: () => {} };
}

function copy(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  acc.set(source.subarray(sourceAt, sourceAt + count), accAt);
}

function add(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) + (source[sourceAt + i] as number);
  }
}

function addTwo(acc: Int32Array, a: Int32Array, b: Int32Array): void {
  for (let i = 0; i < acc.length; i++) {
    acc[i] = ((a[i] as number) + (b[i] as number)) | 0;
  }
}

function addFour(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = ((a[i] as number) + (b[i] as number)) | 0;
    acc[i] = ((ab + (c[i] as number)) | 0) + (d[i] as number);
  }
}

function addFourMore(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = ((a[i] as number) + (b[i] as number)) | 0;
    const cd = ((c[i] as number) + (d[i] as number)) | 0;
    acc[i] = (((acc[i] as number) + ab) | 0) + cd;
  }
}

function multiply(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = Math.imul(acc[accAt + i] as number, source[sourceAt + i] as number);
  }
}

function takeMin(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  flip: number,
): void {
  for (let i = 0; i < count; i++) {
    const a = (acc[accAt + i] as number) ^ flip;
    const b = (source[sourceAt + i] as number) ^ flip;
    // The sign of a - b, corrected where it overflowed; without a data-dependent branch.
    const takeA = ((a - b) ^ ((a ^ b) & ((a - b) ^ a))) >> 31;
    acc[accAt + i] = b ^ ((a ^ b) & takeA) ^ flip;
  }
}

function scale(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = Math.imul(source[sourceAt + i] as number, scalar);
  }
}

function addScaled(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = Math.imul(source[sourceAt + i] as number, scalar);
    acc[accAt + i] = (acc[accAt + i] as number) + product;
  }
}

/**
 * Truncating division; a double is precise enough for 32 bits over any number of ranks.
 */
function divide(
  acc: Int32Array,
  accAt: number,
  count: number,
  ranks: number,
  signed: boolean,
): void {
  for (let i = 0; i < count; i++) {
    const bits = acc[accAt + i] as number;
    acc[accAt + i] = Math.trunc((signed ? bits : bits >>> 0) / ranks);
  }
}
