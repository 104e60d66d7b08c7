/**
 * The two hops of a scaled sum of halves: `x * scalar + partial` rounded once (fused) or twice
 * (separate).
 *
 * The exact product of two halves may lie so far from the partial that their sum is inexact in a
 * double; then, and only then, rounding it again could differ from one rounding of the exact value.
 */
import { block, type Half } from "./half-block.ts";
import { oddSum } from "./odd-sum.ts";
import { nearest } from "./small-float.ts";

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
    // The sum is exact when taking either term away leaves the other one.
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
