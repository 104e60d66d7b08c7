/**
 * int64 and uint64 as pairs of 32-bit words, low word first.
 *
 * BigInt would need memory aligned to 8 bytes, and boxes. Signed and unsigned share the bits of
 * sums and products; they differ in comparing and dividing.
 *
 * A sum adds the unsigned low words as doubles, which hold the sum of thousands of them exactly; the bits above 32 are the
 * carry. Wrapping sums are associative, so high words are added in pairs. A product takes the low word of two words from
 * `Math.imul`, and the high word from products of 16-bit halves. Only the low words of cross terms count.
 */
import { type Chain, chainByFour, chainByOne, type FoldMethods, type Hop } from "./fold.ts";

type PairHop = Hop<Int32Array>;

const twoTo32 = 2 ** 32;

/** Sum of 64-bit integers, and the average that divides it by `ranks` at the end. */
export function word64Sum(average?: {
  readonly ranks: number;
  readonly signed: boolean;
}): FoldMethods {
  const passes = { two: addTwoPairs, four: addFourPairs, fourMore: addFourMorePairs };
  const sum = methods(copy, addPairs, addPairs, chainByFour(copy, addPairs, passes, 2));
  if (average === undefined) return sum;
  const { ranks, signed } = average;
  const finish = (acc: Int32Array, accAt: number, count: number): void =>
    divide(acc, accAt, count, ranks, signed);
  return { ...sum, finish };
}

/** Product of 64-bit integers. */
export function word64Prod(): FoldMethods {
  return methods(copy, multiplyWords, multiplyWords, chainByOne(copy, multiplyWords));
}

/** Minimum or maximum of 64-bit integers. */
export function word64Extreme(which: "min" | "max", signed: boolean): FoldMethods {
  // Complementing both operands turns a minimum into a maximum; low words compare unsigned.
  const complement = which === "max" ? -1 : 0;
  const flip = (signed ? 0 : 1 << 31) ^ complement;
  const pick: PairHop = (acc, accAt, source, sourceAt, count) =>
    takeMin(acc, accAt, source, sourceAt, count, flip, (1 << 31) ^ complement);
  return methods(copy, pick, pick, chainByOne(copy, pick));
}

/** Sum of 64-bit integers that are each multiplied by `scalar` first. */
export function word64ScaledSum(scalar: bigint): FoldMethods {
  const low = Number(BigInt.asIntN(32, scalar));
  const high = Number(BigInt.asIntN(32, scalar >> 32n));
  const begin: PairHop = (acc, accAt, source, sourceAt, count) =>
    scaleWords(acc, accAt, source, sourceAt, count, low, high);
  const hop: PairHop = (acc, accAt, source, sourceAt, count) =>
    addScaledWords(acc, accAt, source, sourceAt, count, low, high);
  return methods(begin, hop, addPairs, chainByOne(begin, hop));
}

function methods(
  begin: PairHop,
  addContribution: PairHop,
  addPartial: PairHop,
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
  acc.set(source.subarray(2 * sourceAt, 2 * (sourceAt + count)), 2 * accAt);
}

/** `highFlip` and `lowFlip` map the required order of words to their signed order. */
function takeMin(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  highFlip: number,
  lowFlip: number,
): void {
  let from = 2 * sourceAt;
  const end = 2 * (accAt + count);
  for (let at = 2 * accAt; at < end; at += 2, from += 2) {
    const high = (source[from + 1] as number) ^ highFlip;
    const ownHigh = (acc[at + 1] as number) ^ highFlip;
    if (high > ownHigh) continue;
    const low = source[from] as number;
    if (high === ownHigh && (low ^ lowFlip) >= ((acc[at] as number) ^ lowFlip)) continue;
    acc[at] = low;
    acc[at + 1] = high ^ highFlip;
  }
}

/**
 * Truncating division by up to 2^20 ranks: signed values by their magnitude, as in NCCL. The
 * remainder of the high word and the low word are an exact double. Its quotient is too far from the
 * next integer to round to it.
 */
function divide(
  acc: Int32Array,
  accAt: number,
  count: number,
  ranks: number,
  signed: boolean,
): void {
  for (let at = 2 * accAt; at < 2 * (accAt + count); at += 2) {
    let low = acc[at] as number;
    let high = acc[at + 1] as number;
    const negative = signed && high < 0;
    if (negative) {
      high = ~high + (low === 0 ? 1 : 0);
      low = -low;
    }
    const highSize = high >>> 0;
    const highQuotient = Math.trunc(highSize / ranks);
    const rest = (highSize - highQuotient * ranks) * twoTo32 + (low >>> 0);
    const lowQuotient = Math.trunc(rest / ranks) | 0;
    acc[at] = negative ? -lowQuotient : lowQuotient;
    acc[at + 1] = negative ? ~highQuotient + (lowQuotient === 0 ? 1 : 0) : highQuotient;
  }
}

/** `2^-32`: moves the carry of a sum of low words down to the units. */
const carryPlace = 2 ** -32;

/** `acc = acc + source`. */
function addPairs(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const low = ((acc[to + i] as number) >>> 0) + ((source[from + i] as number) >>> 0);
    const high = (acc[to + i + 1] as number) + (source[from + i + 1] as number);
    acc[to + i] = low;
    acc[to + i + 1] = (high | 0) + ((low * carryPlace) | 0);
  }
}

/** `acc = s0 + s1`. */
function addTwoPairs(acc: Int32Array, a: Int32Array, b: Int32Array): void {
  for (let i = 0; i < acc.length; i += 2) {
    const low = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const high = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}

/** `acc = s0 + s1 + s2 + s3`. */
function addFourPairs(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i += 2) {
    const abLow = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const abHigh = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    const cdLow = ((c[i] as number) >>> 0) + ((d[i] as number) >>> 0);
    const cdHigh = ((c[i + 1] as number) + (d[i + 1] as number)) | 0;
    const low = abLow + cdLow;
    const high = (abHigh + cdHigh) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}

/** `acc = acc + s0 + s1 + s2 + s3`. */
function addFourMorePairs(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i += 2) {
    const abLow = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const abHigh = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    const cdLow = ((c[i] as number) >>> 0) + ((d[i] as number) >>> 0);
    const cdHigh = ((c[i + 1] as number) + (d[i + 1] as number)) | 0;
    const low = ((acc[i] as number) >>> 0) + abLow + cdLow;
    const high = ((((acc[i + 1] as number) + abHigh) | 0) + cdHigh) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}

/** The high word of the unsigned product of two words. */
function highProduct(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  // Each term fits a double: 32 bits, and less than 2^34 in the sum.
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const cross = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0;
}

/** `acc = acc * source`. */
function multiplyWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = acc[to + i] as number;
    const b = source[from + i] as number;
    const cross =
      (Math.imul(a, source[from + i + 1] as number) + Math.imul(acc[to + i + 1] as number, b)) | 0;
    acc[to + i] = Math.imul(a, b);
    acc[to + i + 1] = highProduct(a, b) + cross;
  }
}

/** `acc = source * scalar`. */
function scaleWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalarLow: number,
  scalarHigh: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = source[from + i] as number;
    const high = source[from + i + 1] as number;
    const cross = (Math.imul(a, scalarHigh) + Math.imul(high, scalarLow)) | 0;
    acc[to + i] = Math.imul(a, scalarLow);
    acc[to + i + 1] = highProduct(a, scalarLow) + cross;
  }
}

/** `acc = acc + source * scalar`. */
function addScaledWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalarLow: number,
  scalarHigh: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = source[from + i] as number;
    const high = source[from + i + 1] as number;
    const cross = (Math.imul(a, scalarHigh) + Math.imul(high, scalarLow)) | 0;
    const productHigh = (highProduct(a, scalarLow) + cross) | 0;
    const low = ((acc[to + i] as number) >>> 0) + (Math.imul(a, scalarLow) >>> 0);
    const sumHigh = ((acc[to + i + 1] as number) + productHigh) | 0;
    acc[to + i] = low;
    acc[to + i + 1] = sumHigh + ((low * 2 ** -32) | 0);
  }
}
