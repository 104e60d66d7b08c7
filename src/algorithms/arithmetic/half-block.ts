/**
 * The passes over a block of decoded halves: load, add, multiply, scale, store.
 *
 * Each pass rounds every value to the format by Veltkamp's splitting, inlined because it is the
 * innermost loop. `nearest` handles overflow, infinity, NaN, and subnormal results of a product; a
 * sum of halves is always a whole number of subnormal steps.
 *
 * A sum of two halves may be inexact even in a double. Then one of them is so small that the larger
 * one is the result: rounding twice gives the bits of rounding once. A scaled hop computes
 * `x * scalar + partial`, rounded once (fused) or twice (separate). The exact product of two halves
 * may lie so far from the partial that their sum is inexact in a double. Only then can rounding it
 * again differ from one rounding of the exact value.
 */

import { oddSum } from "./odd-sum.ts";
import { nearest, type SmallFormat } from "./small-float.ts";

/** A format and the values of its 65,536 bit patterns. */
export interface Half {
  readonly format: SmallFormat;
  readonly decode: Float32Array;
}

/** Elements that are decoded together: 8 KiB of doubles. */
export const blockElements = 1024;

/** The block being folded. Folds are synchronous, so one is enough. */
const block: Float64Array = new Float64Array(blockElements);

const floats = new Float32Array(blockElements);
const words = new Int32Array(floats.buffer);

/** `block = source`. */
export function loadBlock(half: Half, source: Uint16Array, at: number, count: number): void {
  const decode = half.decode;
  for (let i = 0; i < count; i++) block[i] = decode[source[at + i] as number] as number;
}

/** `target = block`; all values of the block are values of the format. */
export function storeBlock(half: Half, target: Uint16Array, at: number, count: number): void {
  const { scale, shift } = half.format;
  for (let i = 0; i < count; i++) floats[i] = (block[i] as number) * scale;
  for (let i = 0; i < count; i++) {
    const bits = words[i] as number;
    target[at + i] = ((bits >>> 16) & 0x8000) | ((bits >>> shift) & 0x7fff);
  }
}

/** `block = block + source`. */
export function addBlock(half: Half, source: Uint16Array, at: number, count: number): void {
  const { decode, format } = half;
  const { split, most } = format;
  for (let i = 0; i < count; i++) {
    const sum = (block[i] as number) + (decode[source[at + i] as number] as number);
    const q = sum * split;
    const rounded = q - (q - sum);
    block[i] = rounded;
    if (!(Math.abs(rounded) <= most)) block[i] = nearest(format, sum);
  }
}

/** `block = (block + a) + b`: two hops in one pass. */
export function addTwoToBlock(
  half: Half,
  a: Uint16Array,
  aAt: number,
  b: Uint16Array,
  bAt: number,
  count: number,
): void {
  const { decode, format } = half;
  const { split, most } = format;
  for (let i = 0; i < count; i++) {
    const first = (block[i] as number) + (decode[a[aAt + i] as number] as number);
    const p = first * split;
    let between = p - (p - first);
    if (!(Math.abs(between) <= most)) between = nearest(format, first);
    const second = between + (decode[b[bAt + i] as number] as number);
    const q = second * split;
    const rounded = q - (q - second);
    block[i] = rounded;
    if (!(Math.abs(rounded) <= most)) block[i] = nearest(format, second);
  }
}

/** `block = block * source`. */
export function multiplyBlock(half: Half, source: Uint16Array, at: number, count: number): void {
  const { decode, format } = half;
  const { split, least, most } = format;
  for (let i = 0; i < count; i++) {
    const product = (block[i] as number) * (decode[source[at + i] as number] as number);
    const q = product * split;
    const rounded = q - (q - product);
    const size = Math.abs(rounded);
    block[i] = rounded;
    if (!(size >= least && size <= most)) block[i] = nearest(format, product);
  }
}

/** `block = source * scalar`. */
export function scaleIntoBlock(
  half: Half,
  source: Uint16Array,
  at: number,
  count: number,
  scalar: number,
): void {
  const { decode, format } = half;
  const { split, least, most } = format;
  for (let i = 0; i < count; i++) {
    const product = (decode[source[at + i] as number] as number) * scalar;
    const q = product * split;
    const rounded = q - (q - product);
    const size = Math.abs(rounded);
    block[i] = rounded;
    if (!(size >= least && size <= most)) block[i] = nearest(format, product);
  }
}

/** `block = round(source * scalar + block)`. */
export function fuseIntoBlock(
  half: Half,
  source: Uint16Array,
  at: number,
  count: number,
  scalar: number,
): void {
  const { decode, format } = half;
  const { split, least, most } = format;
  for (let i = 0; i < count; i++) {
    const product = (decode[source[at + i] as number] as number) * scalar;
    const partial = block[i] as number;
    const sum = product + partial;
    const q = sum * split;
    const rounded = q - (q - sum);
    const size = Math.abs(rounded);
    // The sum is exact when subtracting either term leaves the other one.
    const plain =
      size >= least && size <= most && sum - product === partial && sum - partial === product;
    block[i] = rounded;
    if (!plain) block[i] = nearest(format, oddSum(product, partial));
  }
}

/** `block = round(round(source * scalar) + block)`. */
export function addScaledToBlock(
  half: Half,
  source: Uint16Array,
  at: number,
  count: number,
  scalar: number,
): void {
  const { decode, format } = half;
  const { split, least, most } = format;
  for (let i = 0; i < count; i++) {
    const exact = (decode[source[at + i] as number] as number) * scalar;
    const p = exact * split;
    let product = p - (p - exact);
    const size = Math.abs(product);
    if (!(size >= least && size <= most)) product = nearest(format, exact);
    const sum = (block[i] as number) + product;
    const q = sum * split;
    const rounded = q - (q - sum);
    block[i] = rounded;
    if (!(Math.abs(rounded) <= most)) block[i] = nearest(format, sum);
  }
}
