/**
 * float64 sums of contributions that are each multiplied by a scalar first: averages,
 * pre-multiplied sums.
 *
 * A fused hop is the exactly rounded `x * scalar + partial`. The loop here does it in doubles where
 * that is provably right, and hands every doubtful element to `fma`.
 */
import { type Chain, chainByOne, type FoldMethods, type Hop } from "./chains.ts";
import { add64 } from "./float64.ts";
import { fma } from "./float64-fma.ts";
import { canonicalise64 } from "./nan.ts";
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
/** Just more than 1, to ask whether a rest is clearly less than half a unit in the last place. */
const nudge = 1 + 2 ** -20;
const leastNormal = 2 ** -1022;

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
 * Anything infinite or NaN on the way fails the comparisons and goes to `fma` as well.
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
    // Stored first, corrected if need be: a choice between two values costs V8 more time.
    acc[accAt + i] = rounded;
    if (!clear) acc[accAt + i] = fma(x, scalar, partial);
  }
}

/** Times a power of two the product is exact, unless it is subnormal or overflows. */
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
    const exact = size >= leastNormal && size <= Number.MAX_VALUE;
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
