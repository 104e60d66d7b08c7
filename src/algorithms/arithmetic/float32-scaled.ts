/**
 * float32 sums of contributions that are each multiplied by a scalar first: averages,
 * pre-multiplied sums.
 *
 * The product of two float32 is exact in a double. Adding the partial rounds to a double, and
 * storing rounds again. The second rounding is wrong only where the double lies exactly half way
 * between two float32 but the true sum does not. Such a double has 25 bits at most, which is rare.
 */

import { add32 } from "./float32.ts";
import { type Chain, canonicalise32, chainByOne, type FoldMethods, type Hop } from "./fold.ts";
import { oddSum } from "./odd-sum.ts";
import { isPowerOfTwo } from "./scalar.ts";

const round = Math.fround;
/** Veltkamp's constant for 25 bits: the splitting leaves a number of 25 bits as it is. */
const splitAt25 = 2 ** 28 + 1;

type Scaled = (
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
  scalar: number,
) => void;

/** Sum of `x * scalar`: each hop rounds once when `fused`, else the product and then the sum. */
export function float32ScaledSum(scalar: number, fused: boolean): FoldMethods {
  // A power of two keeps the 24 bits of a float32, and a sum of two such can be rounded twice.
  const scaled = fused ? (isPowerOfTwo(scalar) ? fuseByPower : fuse) : addProduct;
  const begin = withScalar(scale, scalar);
  const hop = withScalar(scaled, scalar);
  const chain: Chain<Float32Array> = chainByOne(begin, hop);
  const passes = { begin, addContribution: hop, addPartial: add32, chain };
  return { ...passes, finish: canonicalise32 };
}

function withScalar(pass: Scaled, scalar: number): Hop<Float32Array> {
  return (acc, accAt, source, sourceAt, count) => pass(acc, accAt, source, sourceAt, count, scalar);
}

function scale(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) acc[accAt + i] = (source[sourceAt + i] as number) * scalar;
}

function fuse(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = (source[sourceAt + i] as number) * scalar;
    const partial = acc[accAt + i] as number;
    const sum = product + partial;
    const q = sum * splitAt25;
    // Stored first and corrected if necessary: a choice between two values takes V8 twice the time.
    acc[accAt + i] = sum;
    if (q - (q - sum) === sum) acc[accAt + i] = settle(product, partial);
  }
}

/** The sum for the last rounding: odd where the double lies half way between two float32. */
function settle(product: number, partial: number): number {
  const sum = product + partial;
  return round(sum) === sum ? sum : oddSum(product, partial);
}

function fuseByPower(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = (source[sourceAt + i] as number) * scalar;
    acc[accAt + i] = product + (acc[accAt + i] as number);
  }
}

function addProduct(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = round((source[sourceAt + i] as number) * scalar);
    acc[accAt + i] = product + (acc[accAt + i] as number);
  }
}
