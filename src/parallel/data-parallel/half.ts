/**
 * 16-bit floats for the wire: rounding to nearest, ties to even, and back.
 *
 * bfloat16 is the upper half of a float32. To round twice on the way from float64 would be wrong near ties, so the value
 * is first brought to float32 by rounding to odd: truncated, with the last bit set when anything was lost.
 */

/** The short formats that gradients can travel in. */
export type HalfDType = "float16" | "bfloat16";

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** The bits of float32 next to `x` towards zero, with the last bit set when `x` lies beyond it. */
function oddBits(x: number): number {
  float[0] = x;
  const near = float[0] as number;
  let bits = word[0] as number;
  if (near === x || Number.isNaN(x)) return bits;
  // Never for zero: a magnitude that rounds to zero is not larger than what it came from.
  if (Math.abs(near) > Math.abs(x)) bits -= 1;
  return bits | 1;
}

/** The bits of `x` rounded to a 16-bit float; a NaN is the quiet one, what is too large becomes infinite. */
export function halfBits(dtype: HalfDType, x: number): number {
  const bits = oddBits(x);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return dtype === "float16" ? 0x7e00 : 0x7fc0;
  if (dtype === "bfloat16") return sign | roundShift(magnitude, 16);
  if (magnitude >= 0x47800000) return sign | 0x7c00;
  // Normal: rebias the exponent from 127 to 15 and drop 13 bits; the carry of rounding reaches infinity by itself.
  if (magnitude >= 0x38800000) return sign | roundShift(magnitude - 0x38000000, 13);
  // Subnormal: whole multiples of 2^-24; the hidden bit is moved to where it belongs.
  const shift = 126 - (magnitude >>> 23);
  if (shift > 25) return sign | 0;
  return sign | roundShift((magnitude & 0x7fffff) | 0x800000, shift);
}

/** The value of a 16-bit float. */
export function halfValue(dtype: HalfDType, bits: number): number {
  if (dtype === "bfloat16") {
    word[0] = bits << 16;
    return float[0] as number;
  }
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** `value` without its last `shift` bits, rounded to nearest, ties to even. */
function roundShift(value: number, shift: number): number {
  const kept = value >>> shift;
  const lost = value - kept * 2 ** shift;
  const half = 2 ** (shift - 1);
  return kept + (lost > half || (lost === half && (kept & 1) === 1) ? 1 : 0);
}
