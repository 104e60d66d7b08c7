/**
 * float64: sum, product, minimum and maximum.
 *
 * JavaScript's own numbers, one rounding for each operator. The loops repeat those of float32 on
 * purpose: a loop over two classes of arrays is several times slower.
 */
import {
  type Chain,
  canonicalise64,
  chainByFour,
  chainByOne,
  type FoldMethods,
  type Hop,
} from "./fold.ts";

/** Sum of float64. */
export function float64Sum(): FoldMethods {
  const passes = { two: addTwo, four: addFour, fourMore: addFourMore };
  return methods(add64, chainByFour(copy, add64, passes));
}

/** Product of float64. */
export function float64Prod(): FoldMethods {
  return methods(multiply, chainByOne(copy, multiply));
}

/** Minimum of float64: -0 lies below +0, a NaN loses to a number. */
export function float64Min(): FoldMethods {
  return methods(takeMin, chainByOne(copy, takeMin));
}

/** Maximum of float64: -0 lies below +0, a NaN loses to a number. */
export function float64Max(): FoldMethods {
  return methods(takeMax, chainByOne(copy, takeMax));
}

function methods(hop: Hop<Float64Array>, chain: Chain<Float64Array>): FoldMethods {
  const passes = { begin: copy, addContribution: hop, addPartial: hop, chain };
  return { ...passes, finish: canonicalise64 };
}

function copy(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
): void {
  acc.set(source.subarray(sourceAt, sourceAt + count), accAt);
}

/** `acc = acc + source`; every sum joins partials this way too. */
export function add64(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) + (source[sourceAt + i] as number);
  }
}

function addTwo(acc: Float64Array, a: Float64Array, b: Float64Array): void {
  for (let i = 0; i < acc.length; i++) {
    acc[i] = (a[i] as number) + (b[i] as number);
  }
}

function addFour(
  acc: Float64Array,
  a: Float64Array,
  b: Float64Array,
  c: Float64Array,
  d: Float64Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = (a[i] as number) + (b[i] as number);
    acc[i] = ab + (c[i] as number) + (d[i] as number);
  }
}

function addFourMore(
  acc: Float64Array,
  a: Float64Array,
  b: Float64Array,
  c: Float64Array,
  d: Float64Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const withA = (acc[i] as number) + (a[i] as number);
    const withB = withA + (b[i] as number);
    acc[i] = withB + (c[i] as number) + (d[i] as number);
  }
}

function multiply(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) * (source[sourceAt + i] as number);
  }
}

function takeMin(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const a = acc[accAt + i] as number;
    const b = source[sourceAt + i] as number;
    const least = Math.min(a, b);
    acc[accAt + i] = least;
    // The minimum is NaN when either is NaN; the other one is then the result.
    if (Number.isNaN(least)) acc[accAt + i] = Number.isNaN(a) ? b : a;
  }
}

function takeMax(
  acc: Float64Array,
  accAt: number,
  source: Float64Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const a = acc[accAt + i] as number;
    const b = source[sourceAt + i] as number;
    const most = Math.max(a, b);
    acc[accAt + i] = most;
    if (Number.isNaN(most)) acc[accAt + i] = Number.isNaN(a) ? b : a;
  }
}
