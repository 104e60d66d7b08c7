/**
 * int64 and uint64 as pairs of 32-bit words, low word first.
 *
 * BigInt would need memory aligned to 8 bytes, and boxes. Signed and unsigned share the bits of
 * sums (words64-sum.ts) and products (words64-product.ts); comparing and dividing, here, tell them
 * apart.
 */
import { type Chain, chainByFour, chainByOne, type FoldMethods, type Hop } from "./chains.ts";
import { addScaledWords, multiplyWords, scaleWords } from "./words64-product.ts";
import { addFourMorePairs, addFourPairs, addPairs, addTwoPairs } from "./words64-sum.ts";

type PairHop = Hop<Int32Array>;

const twoTo32 = 2 ** 32;

/** Sum of 64-bit integers, and the average that divides it by `ranks` in the end. */
export function word64Sum(average?: {
  readonly ranks: number;
  readonly signed: boolean;
}): FoldMethods {
  const gangs = { two: addTwoPairs, four: addFourPairs, fourMore: addFourMorePairs };
  const sum = methods(copy, addPairs, addPairs, chainByFour(copy, addPairs, gangs, 2));
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
    takeLeast(acc, accAt, source, sourceAt, count, flip, (1 << 31) ^ complement);
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

/** `highFlip` and `lowFlip` turn the words into ones whose signed order is the order wanted. */
function takeLeast(
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
 * Truncating division by up to 2^20 ranks: signed values by their size, as NCCL does. The high
 * word's rest and the low word make a whole double, and its quotient is too far from the next
 * integer to round to it.
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
