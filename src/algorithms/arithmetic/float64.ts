/**
 * float64: sum, product, minimum and maximum.
 *
 * JavaScript's own numbers, one rounding for each operator. The loops read like those of float32
 * and are written twice on purpose: a loop that meets two classes of arrays is several times
 * slower.
 */
import { type Chain, chainByFour, chainByOne, type FoldMethods, type Hop } from "./chains.ts";
import { canonicalise64 } from "./nan.ts";

/** Sum of float64. */
export function float64Sum(): FoldMethods {
  const gangs = { two: addTwo, four: addFour, fourMore: addFourMore };
  return methods(add64, chainByFour(copy, add64, gangs));
}

/** Product of float64. */
export function float64Prod(): FoldMethods {
  return methods(multiply, chainByOne(copy, multiply));
}

/** Minimum of float64: -0 lies below +0, a NaN loses to a number. */
export function float64Min(): FoldMethods {
  return methods(takeLeast, chainByOne(copy, takeLeast));
}

/** Maximum of float64: -0 lies below +0, a NaN loses to a number. */
export function float64Max(): FoldMethods {
  return methods(takeMost, chainByOne(copy, takeMost));
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

/** `acc = acc + source`: also how partials join under every sum. */
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

function addTwo(
  acc: Float64Array,
  accAt: number,
  sources: readonly Float64Array[],
  sourceAts: readonly number[],
  first: number,
  skip: number,
  count: number,
): void {
  const [a, b] = [sources[first] as Float64Array, sources[first + 1] as Float64Array];
  const aAt = (sourceAts[first] as number) + skip;
  const bAt = (sourceAts[first + 1] as number) + skip;
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (a[aAt + i] as number) + (b[bAt + i] as number);
  }
}

function addFour(
  acc: Float64Array,
  accAt: number,
  sources: readonly Float64Array[],
  sourceAts: readonly number[],
  first: number,
  skip: number,
  count: number,
): void {
  const [a, b] = [sources[first] as Float64Array, sources[first + 1] as Float64Array];
  const [c, d] = [sources[first + 2] as Float64Array, sources[first + 3] as Float64Array];
  const aAt = (sourceAts[first] as number) + skip;
  const bAt = (sourceAts[first + 1] as number) + skip;
  const cAt = (sourceAts[first + 2] as number) + skip;
  const dAt = (sourceAts[first + 3] as number) + skip;
  for (let i = 0; i < count; i++) {
    const ab = (a[aAt + i] as number) + (b[bAt + i] as number);
    acc[accAt + i] = ab + (c[cAt + i] as number) + (d[dAt + i] as number);
  }
}

function addFourMore(
  acc: Float64Array,
  accAt: number,
  sources: readonly Float64Array[],
  sourceAts: readonly number[],
  first: number,
  skip: number,
  count: number,
): void {
  const [a, b] = [sources[first] as Float64Array, sources[first + 1] as Float64Array];
  const [c, d] = [sources[first + 2] as Float64Array, sources[first + 3] as Float64Array];
  const aAt = (sourceAts[first] as number) + skip;
  const bAt = (sourceAts[first + 1] as number) + skip;
  const cAt = (sourceAts[first + 2] as number) + skip;
  const dAt = (sourceAts[first + 3] as number) + skip;
  for (let i = 0; i < count; i++) {
    const withA = (acc[accAt + i] as number) + (a[aAt + i] as number);
    const withB = withA + (b[bAt + i] as number);
    acc[accAt + i] = withB + (c[cAt + i] as number) + (d[dAt + i] as number);
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

function takeLeast(
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
    // NaN when either is: then the other one counts.
    if (Number.isNaN(least)) acc[accAt + i] = Number.isNaN(a) ? b : a;
  }
}

function takeMost(
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
