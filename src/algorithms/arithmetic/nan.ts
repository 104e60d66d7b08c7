/**
 * The canonical NaN of each float dtype, the only one that a reduction writes.
 *
 * GPUs canonicalise the NaNs of 4-, 2- and 1-byte arithmetic to these patterns. float64 keeps a payload there, without a claim
 * about it, so it gets a fixed pattern as well.
 */
import type { DType } from "../../api/dtype.ts";
import type { Lanes } from "./fold.ts";

/** Dtypes that have a NaN. */
export type FloatDType = Extract<DType, `${string}float${string}`>;

/** Bits of the canonical NaN. */
export const canonicalNaN: { readonly [D in FloatDType]: bigint } = {
  float16: 0x7fffn,
  bfloat16: 0x7fffn,
  float32: 0x7fff_ffffn,
  float64: 0x7ff8_0000_0000_0000n,
  float8e4m3: 0x7fn,
  float8e5m2: 0x7fn,
};

// JavaScript numbers need not keep the bits of a NaN, but `set` between arrays of one class copies
// bytes. So these single elements are written through their words and copied later.
const float32NaN = new Float32Array(new Uint32Array([0x7fff_ffff]).buffer);
const float64NaN = new Float64Array(new Uint32Array([0, 0x7ff8_0000]).buffer);

/**
 * Writes every NaN among `count` elements from `at` on as the canonical one; integers have none.
 */
export function canonicalise(dtype: DType, lanes: Lanes, at: number, count: number): void {
  if (dtype === "float32") canonicalise32(lanes as Float32Array, at, count);
  else if (dtype === "float64") canonicalise64(lanes as Float64Array, at, count);
  else if (dtype === "float16") canonicalise16(lanes as Uint16Array, at, count, 0x7c00);
  else if (dtype === "bfloat16") canonicalise16(lanes as Uint16Array, at, count, 0x7f80);
  else if (dtype === "float8e4m3") canonicalise8(lanes as Uint8Array, at, count, 0x7e);
  else if (dtype === "float8e5m2") canonicalise8(lanes as Uint8Array, at, count, 0x7c);
}

/** Writes the NaNs of `count` float32 lanes canonically. */
export function canonicalise32(lanes: Float32Array, at: number, count: number): void {
  const end = at + count;
  let i = at;
  // A sum is NaN when any of its terms is: one comparison clears four elements.
  for (; i + 4 <= end; i += 4) {
    const low = (lanes[i] as number) + (lanes[i + 1] as number);
    const sum = low + (lanes[i + 2] as number) + (lanes[i + 3] as number);
    if (!Number.isNaN(sum)) continue;
    for (let j = i; j < i + 4; j++) if (Number.isNaN(lanes[j])) lanes.set(float32NaN, j);
  }
  for (; i < end; i++) if (Number.isNaN(lanes[i])) lanes.set(float32NaN, i);
}

/** Writes the NaNs of `count` float64 lanes canonically. */
export function canonicalise64(lanes: Float64Array, at: number, count: number): void {
  const end = at + count;
  let i = at;
  for (; i + 4 <= end; i += 4) {
    const low = (lanes[i] as number) + (lanes[i + 1] as number);
    const sum = low + (lanes[i + 2] as number) + (lanes[i + 3] as number);
    if (!Number.isNaN(sum)) continue;
    for (let j = i; j < i + 4; j++) if (Number.isNaN(lanes[j])) lanes.set(float64NaN, j);
  }
  for (; i < end; i++) if (Number.isNaN(lanes[i])) lanes.set(float64NaN, i);
}

/** Writes the NaNs of `count` 2-byte lanes canonically; they are the magnitudes above `last`. */
export function canonicalise16(lanes: Uint16Array, at: number, count: number, last: number): void {
  for (let i = at; i < at + count; i++) {
    if (((lanes[i] as number) & 0x7fff) > last) lanes[i] = 0x7fff;
  }
}

/** Writes the NaNs of `count` 1-byte lanes canonically; they are the magnitudes above `last`. */
export function canonicalise8(lanes: Uint8Array, at: number, count: number, last: number): void {
  for (let i = at; i < at + count; i++) {
    if (((lanes[i] as number) & 0x7f) > last) lanes[i] = 0x7f;
  }
}
