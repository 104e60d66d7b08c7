/** The float types: how their bits are divided, and how far neighbours lie apart. */
import type { DType } from "twinccl";

/**
 * Bits of the exponent and of the fraction, the exponent of the smallest subnormal, and the largest number, where results
 * saturate at it.
 */
export interface FloatFormat {
  readonly exponent: number;
  readonly fraction: number;
  readonly least: number;
  readonly largest?: number;
}

export const floatFormats: { readonly [D in DType]?: FloatFormat } = {
  float64: { exponent: 11, fraction: 52, least: -1074 },
  float32: { exponent: 8, fraction: 23, least: -149 },
  float16: { exponent: 5, fraction: 10, least: -24 },
  bfloat16: { exponent: 8, fraction: 7, least: -133 },
  float8e4m3: { exponent: 4, fraction: 3, least: -9, largest: 448 },
  float8e5m2: { exponent: 5, fraction: 2, least: -16, largest: 57_344 },
};

/** Exponent e of the unit in the last place, 2^e, of a finite number of a format. */
export function unitOf(x: number, { fraction, least }: FloatFormat): number {
  if (x === 0) return least;
  const size = Math.abs(x);
  let exponent = Math.floor(Math.log2(size));
  // The logarithm may be one off beside a power of two.
  if (2 ** exponent > size) exponent--;
  else if (2 ** (exponent + 1) <= size) exponent++;
  return Math.max(least, exponent - fraction);
}
