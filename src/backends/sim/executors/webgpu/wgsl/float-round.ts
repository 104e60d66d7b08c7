/**
 * `round_NAME(sign, exponent, significand)`: how a sum or product becomes an element.
 *
 * 2- and 4-byte floats take the nearest value. 1-byte floats go through float16 first, as GPUs convert them, and
 * saturate. `narrow_NAME` does the same for float32 bits, NaN included, straight to the format.
 */
import { hex, packing, type WordFloat, widening, wordFormats } from "./float-format.ts";

/** True for the floats that are rounded by way of float16. */
function isByteFloat(dtype: WordFloat): boolean {
  return wordFormats[dtype].width === 8;
}

/** Everything the operators of a dtype need. */
export function rounding(dtype: WordFloat): string {
  const own = packing(dtype) + widening(dtype);
  if (!isByteFloat(dtype)) {
    return /* wgsl */ `${own}
fn round_${dtype}(sign: u32, exponent: i32, significand: u32) -> u32 {
  return pack_${dtype}(sign, exponent, significand);
}
`;
  }
  return /* wgsl */ `${own}${packing("float16")}${widening("float16")}
fn round_${dtype}(sign: u32, exponent: i32, significand: u32) -> u32 {
  let half = widen_float16(pack_float16(sign, exponent, significand));
  return pack_${dtype}(sign, exponent32(half), significand32(half));
}
`;
}

/** `narrow_NAME(float32 bits)`. */
export function narrowing(dtype: WordFloat): string {
  return /* wgsl */ `
fn narrow_${dtype}(x: u32) -> u32 {
  if ((x & 0x7fffffffu) > 0x7f800000u) { return ${hex(wordFormats[dtype].nan)}; }
  return pack_${dtype}(x & 0x80000000u, exponent32(x), significand32(x));
}
`;
}
