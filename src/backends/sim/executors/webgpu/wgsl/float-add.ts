/** `add_NAME(a, b)`: the sum of two elements, rounded once, for floats of up to 4 bytes. */
import { hex, type WordFloat, wordFormats } from "./float-format.ts";

/** Needs `rounding` and `words64`. */
export function addition(dtype: WordFloat): string {
  const { overflow, nan, width } = wordFormats[dtype];
  return /* wgsl */ `
fn add_${dtype}(a: u32, b: u32) -> u32 {
  let x = widen_${dtype}(a);
  let y = widen_${dtype}(b);
  let swap = (y & 0x7fffffffu) > (x & 0x7fffffffu);
  let large = select(x, y, swap);
  let small = select(y, x, swap);
  let sign = large & 0x80000000u;
  let same = sign == (small & 0x80000000u);
  if ((large & 0x7fffffffu) >= 0x7f800000u) {
    if ((large & 0x7fffffffu) > 0x7f800000u || (!same && (small & 0x7fffffffu) == 0x7f800000u)) { return ${hex(nan)}; }
    return ${hex(overflow)} | (sign >> ${32 - width}u);
  }
  let exponent = exponent32(large);
  let high = significand32(large) >> 2u;
  let low = jam32(significand32(small) >> 2u, u32(exponent - exponent32(small)));
  let sum = select(high - low, high + low, same);
  if (sum == 0u) { return select(0u, sign >> ${32 - width}u, same); }
  let zeros = countLeadingZeros(sum);
  return round_${dtype}(sign, exponent + 2 - i32(zeros), sum << zeros);
}
`;
}
