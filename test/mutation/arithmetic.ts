/**
 * The arithmetic of the interpreter: two readings of every element at once.
 *
 * The first is a pre-multiplied sum of float32, where the order of the fold, and whether a contribution is multiplied
 * and added in one rounding or in two, shows in the last bit. The second is an average of int32, where a missing,
 * repeated or undivided contribution shows whatever the order.
 */
import type { HopArithmetic } from "../support/interpreter.ts";

/** The factor of every float; no power of two, so that the product is rounded. */
export const scalar = Math.fround(0.7);

/** Numbers of an element: the float, then the integer. */
export const readings = 2;

/** Both over `ranks` ranks. */
export function twoReadings(ranks: number): HopArithmetic {
  return {
    width: readings,
    partial: (x) =>
      each(
        x,
        (value) => Math.fround(scalar * value),
        (value) => value,
      ),
    fold: (a, b) =>
      each(
        a,
        (value, i) => Math.fround(value + b[i]!),
        (value, i) => (value + b[i]!) | 0,
      ),
    foldIn: (a, x) =>
      each(
        a,
        (value, i) => multiplyAdd(scalar, x[i]!, value),
        (value, i) => (value + x[i]!) | 0,
      ),
    finish: (x) =>
      each(
        x,
        (value) => value,
        (value) => Math.trunc(value / ranks) + 0,
      ),
  };
}

function each(
  values: Float64Array,
  float: (value: number, i: number) => number,
  integer: (value: number, i: number) => number,
): Float64Array {
  return values.map((value, i) => (i % readings === 0 ? float(value, i) : integer(value, i)));
}

const double = new Float64Array(1);
const bits = new BigUint64Array(double.buffer);

/**
 * `factor · x + addend` of float32 in one rounding. The product is exact in a double. Should their sum not be, it is
 * moved to the neighbour with an odd last bit, which keeps the second rounding from meeting a false tie.
 */
function multiplyAdd(factor: number, x: number, addend: number): number {
  const product = factor * x;
  const sum = product + addend;
  const [large, small] =
    Math.abs(product) > Math.abs(addend) ? [product, addend] : [addend, product];
  const lost = small - (sum - large);
  if (lost === 0) return Math.fround(sum);
  double[0] = sum;
  if ((bits[0]! & 1n) === 0n) bits[0] = bits[0]! + (Math.sign(lost) === Math.sign(sum) ? 1n : -1n);
  return Math.fround(double[0]);
}
