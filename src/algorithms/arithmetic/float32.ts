/**
 * float32: sum, product, minimum and maximum.
 *
 * A double sum or product of two float32, rounded to float32, is the correctly rounded one: a double
 * has more than 2 · 24 + 2 bits. So every hop computes in doubles, and `Math.fround` or the store
 * rounds. V8 compiles that to one single-precision instruction.
 */
import {
  type Chain,
  canonicalise32,
  chainByFour,
  chainByOne,
  type FoldMethods,
  type Hop,
} from "./fold.ts";

const round = Math.fround;

/** Sum of float32. */
export function float32Sum(): FoldMethods {
  const passes = { two: addTwo, four: addFour, fourMore: addFourMore };
  return methods(add32, chainByFour(copy, add32, passes));
}

/** Product of float32. */
export function float32Prod(): FoldMethods {
  return methods(multiply, chainByOne(copy, multiply));
}

/** Minimum of float32: -0 lies below +0, a NaN loses to a number. */
export function float32Min(): FoldMethods {
  return methods(takeMin, chainByOne(copy, takeMin));
}

/** Maximum of float32: -0 lies below +0, a NaN loses to a number. */
export function float32Max(): FoldMethods {
  return methods(takeMax, chainByOne(copy, takeMax));
}

function methods(hop: Hop<Float32Array>, chain: Chain<Float32Array>): FoldMethods {
  const passes = { begin: copy, addContribution: hop, addPartial: hop, chain };
  return { ...passes, finish: canonicalise32 };
}

function copy(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
): void {
  acc.set(source.subarray(sourceAt, sourceAt + count), accAt);
}

/** Below this number of elements, two views cost more than they save. */
const fewElements = 64;

/** `acc = acc + source`; every sum joins partials this way too. */
export function add32(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
): void {
  if (count < fewElements) {
    for (let i = 0; i < count; i++) {
      acc[accAt + i] = (acc[accAt + i] as number) + (source[sourceAt + i] as number);
    }
    return;
  }
  addOnto(acc.subarray(accAt, accAt + count), source.subarray(sourceAt, sourceAt + count));
}

/** Eight elements in each turn: V8 takes about half the time of a plain loop. */
function addOnto(acc: Float32Array, a: Float32Array): void {
  const { length } = acc;
  let i = 0;
  for (; i + 8 <= length; i += 8) {
    const s0 = (acc[i] as number) + (a[i] as number);
    const s1 = (acc[i + 1] as number) + (a[i + 1] as number);
    const s2 = (acc[i + 2] as number) + (a[i + 2] as number);
    const s3 = (acc[i + 3] as number) + (a[i + 3] as number);
    const s4 = (acc[i + 4] as number) + (a[i + 4] as number);
    const s5 = (acc[i + 5] as number) + (a[i + 5] as number);
    const s6 = (acc[i + 6] as number) + (a[i + 6] as number);
    const s7 = (acc[i + 7] as number) + (a[i + 7] as number);
    acc[i] = s0;
    acc[i + 1] = s1;
    acc[i + 2] = s2;
    acc[i + 3] = s3;
    acc[i + 4] = s4;
    acc[i + 5] = s5;
    acc[i + 6] = s6;
    acc[i + 7] = s7;
  }
  for (; i < length; i++) acc[i] = (acc[i] as number) + (a[i] as number);
}

function addTwo(acc: Float32Array, a: Float32Array, b: Float32Array): void {
  for (let i = 0; i < acc.length; i++) {
    acc[i] = (a[i] as number) + (b[i] as number);
  }
}

function addFour(
  acc: Float32Array,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
  d: Float32Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = round((a[i] as number) + (b[i] as number));
    acc[i] = round(ab + (c[i] as number)) + (d[i] as number);
  }
}

function addFourMore(
  acc: Float32Array,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
  d: Float32Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const withA = round((acc[i] as number) + (a[i] as number));
    const withB = round(withA + (b[i] as number));
    acc[i] = round(withB + (c[i] as number)) + (d[i] as number);
  }
}

function multiply(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) * (source[sourceAt + i] as number);
  }
}

function takeMin(
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
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
  acc: Float32Array,
  accAt: number,
  source: Float32Array,
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
