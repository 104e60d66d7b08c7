/**
 * float64 sums of contributions that are each multiplied by a scalar first: averages,
 * pre-multiplied sums.
 *
 * A fused hop is the exactly rounded `x * scalar + partial`. The loop computes it in doubles where that is provably right, and
 * calls `fma` for every other element. Those are near ties, products near the ends of the exponent range, zeros, infinities,
 * NaN.
 */

import { add64 } from "./float64.ts";
import { type Chain, canonicalise64, chainByOne, type FoldMethods, type Hop } from "./fold.ts";
import { isPowerOfTwo } from "./scalar.ts";

type Scaled = (
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
  scalar: number,
) => void;

/** `2^27 + 1`: splits a double into two halves of 26 bits. */
const splitter = 134217729;
/** Below this the error of a product might not be a double. */
const safeProduct = 2 ** -900;
/** Slightly above 1, to test that a rest is clearly less than half a unit in the last place. */
const nudge = 1 + 2 ** -20;
const minNormal = 2 ** -1022;

/** Sum of `x * scalar`: each hop rounds once when `fused`, else the product and then the sum. */
export function float64ScaledSum(scalar: number, fused: boolean): FoldMethods {
  const scaled = fused ? (isPowerOfTwo(scalar) ? fuseByPower : fuse) : addProduct;
  const begin = withScalar(scale, scalar);
  const hop = withScalar(scaled, scalar);
  const chain: Chain<Float64Array> = chainByOne(begin, hop);
  const passes = { begin, addContribution: hop, addPartial: add64, chain };
  return { ...passes, finish: canonicalise64 };
}

function withScalar(pass: Scaled, scalar: number): Hop<Float64Array> {
  return (acc, accAt, source, sourceAt, count) => pass(acc, accAt, source, sourceAt, count, scalar);
}

function scale(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) acc[accAt + i] = (source[sourceAt + i] as number) * scalar;
}

/**
 * Dekker's product and Knuth's sum leave the true value as `sum + tail` plus less than the last bit
 * of `tail`. Rounding `sum + tail` is right unless that lies (nearly) half way between two doubles.
 * An infinite or NaN intermediate fails the comparisons and takes `fma` as well.
 */
function fuse(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  const scalarHead = scalar * splitter - (scalar * splitter - scalar);
  const scalarTail = scalar - scalarHead;
  for (let i = 0; i < count; i++) {
    const x = source[sourceAt + i] as number;
    const partial = acc[accAt + i] as number;
    const product = x * scalar;
    const spread = x * splitter;
    const head = spread - (spread - x);
    const tail = x - head;
    const productError =
      head * scalarHead - product + head * scalarTail + tail * scalarHead + tail * scalarTail;
    const sum = product + partial;
    const fromPartial = sum - product;
    const sumError = product - (sum - fromPartial) + (partial - fromPartial);
    const low = sumError + productError;
    const rounded = sum + low;
    const rest = low - (rounded - sum);
    const clear = Math.abs(product) >= safeProduct && rounded + rest * nudge === rounded;
    // Stored first and corrected if necessary: a choice between two values takes V8 more time.
    acc[accAt + i] = rounded;
    if (!clear) acc[accAt + i] = fma(x, scalar, partial);
  }
}

/** For a power of two: the product is exact, unless it is subnormal or overflows. */
function fuseByPower(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const x = source[sourceAt + i] as number;
    const partial = acc[accAt + i] as number;
    const product = x * scalar;
    const size = Math.abs(product);
    const exact = size >= minNormal && size <= Number.MAX_VALUE;
    acc[accAt + i] = product + partial;
    if (!exact) acc[accAt + i] = fma(x, scalar, partial);
  }
}

function addProduct(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = (source[sourceAt + i] as number) * scalar;
    acc[accAt + i] = product + (acc[accAt + i] as number);
  }
}

const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);

/** Exponent of the least subnormal double, and bits of a significand. */
const minExponent = -1074;
const precision = 53;

/** `x * y + z` with one rounding, to nearest and ties to even, for all exponents. */
function fma(x: number, y: number, z: number): number {
  const product = x * y;
  // A zero product is exact, and an infinite or NaN factor leaves no rounding.
  if (x === 0 || y === 0 || !Number.isFinite(x) || !Number.isFinite(y)) return product + z;
  // Finite factors: the true product is finite too, even where the double overflowed.
  if (!Number.isFinite(z)) return z;
  // A product too small to reach the last place of z.
  if (Math.abs(product) < 2 ** -900 && Math.abs(z) > 2 ** -800) return z;
  return exact(x, y, z);
}

/** The same in whole numbers; all operands finite, x and y not zero. */
function exact(x: number, y: number, z: number): number {
  const xExponent = exponentOf(x);
  const yExponent = exponentOf(y);
  const zExponent = exponentOf(z);
  const productExponent = xExponent + yExponent;
  const exponent = Math.min(productExponent, zExponent);
  const product = significandOf(x) * significandOf(y);
  const sum =
    (product << BigInt(productExponent - exponent)) +
    (significandOf(z) << BigInt(zExponent - exponent));
  if (sum === 0n) return 0;
  return sum < 0n ? -nearestDouble(-sum, exponent) : nearestDouble(sum, exponent);
}

/** Exponent e of a finite double that is `significandOf * 2^e`. */
function exponentOf(x: number): number {
  float[0] = x;
  const biased = ((words[1] as number) >>> 20) & 0x7ff;
  return Math.max(biased, 1) - 1023 - 52;
}

/** The signed whole significand of a finite double. */
function significandOf(x: number): bigint {
  float[0] = x;
  const high = words[1] as number;
  const biased = (high >>> 20) & 0x7ff;
  const fraction = (BigInt(high & 0xfffff) << 32n) | BigInt(words[0] as number);
  const size = biased === 0 ? fraction : fraction | (1n << 52n);
  return high >>> 31 === 0 ? size : -size;
}

/** The double nearest to `size * 2^exponent`, for a positive size. */
function nearestDouble(size: bigint, exponent: number): number {
  const length = bitLength(size);
  // Cut to 53 bits, or to whole steps of the least subnormal.
  const drop = Math.max(length - precision, minExponent - exponent);
  if (drop <= 0) return Number(size) * 2 ** exponent;
  const dropped = BigInt(drop);
  const half = 1n << (dropped - 1n);
  let kept = size >> dropped;
  const rest = size - (kept << dropped);
  if (rest > half || (rest === half && (kept & 1n) === 1n)) kept += 1n;
  const last = exponent + drop;
  // 2^last may lie beyond the range of doubles although the product does not.
  return last > 970 ? Number(kept) * 2 ** 970 * 2 ** (last - 970) : Number(kept) * 2 ** last;
}

function bitLength(size: bigint): number {
  return size.toString(2).length;
}
