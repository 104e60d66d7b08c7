/**
 * Products of elements and of an element with a float32 scalar, for floats of up to 4 bytes: rounded by themselves
 * (`multiply_NAME`), or only together with the partial they are added to (`fuse_NAME`).
 */
import { hex, type WordFloat, wordFormats } from "./float-format.ts";

/** `multiply_NAME(float32 bits, float32 bits)`. Needs `rounding` and `words64`. */
export function multiplication(dtype: WordFloat): string {
  const { overflow, nan, width } = wordFormats[dtype];
  return /* wgsl */ `
fn multiply_${dtype}(x: u32, y: u32) -> u32 {
  let sign = (x ^ y) & 0x80000000u;
  let xSize = x & 0x7fffffffu;
  let ySize = y & 0x7fffffffu;
  if (xSize >= 0x7f800000u || ySize >= 0x7f800000u) {
    if (xSize > 0x7f800000u || ySize > 0x7f800000u || xSize == 0u || ySize == 0u) { return ${hex(nan)}; }
    return ${hex(overflow)} | (sign >> ${32 - width}u);
  }
  if (xSize == 0u || ySize == 0u) { return sign >> ${32 - width}u; }
  let product = product64(significand32(x), significand32(y));
  let zeros = countLeadingZeros(product.y);
  let bits = shl64(product, zeros);
  return round_${dtype}(sign, exponent32(x) + exponent32(y) + 1 - i32(zeros), bits.y | u32(bits.x != 0u));
}
`;
}

/** `fuse_NAME(x, scalar, partial)`, `x` and `scalar` as float32 bits. Needs the same. */
export function fusion(dtype: WordFloat): string {
  const { overflow, nan, width } = wordFormats[dtype];
  return /* wgsl */ `
fn fuse_${dtype}(x: u32, scalar: u32, partial: u32) -> u32 {
  let z = widen_${dtype}(partial);
  let sign = (x ^ scalar) & 0x80000000u;
  let zSign = z & 0x80000000u;
  let zSize = z & 0x7fffffffu;
  let same = sign == zSign;
  let more = max(x & 0x7fffffffu, scalar & 0x7fffffffu);
  let less = min(x & 0x7fffffffu, scalar & 0x7fffffffu);
  if (max(more, zSize) >= 0x7f800000u || less == 0u) {
    let opposed = more == 0x7f800000u && (less == 0u || (zSize == 0x7f800000u && !same));
    if (more > 0x7f800000u || zSize > 0x7f800000u || opposed) { return ${hex(nan)}; }
    if (more == 0x7f800000u) { return ${hex(overflow)} | (sign >> ${32 - width}u); }
    if (zSize != 0u) { return partial; }
    return select(0u, sign >> ${32 - width}u, same);
  }
  let product = product64(significand32(x), significand32(scalar));
  let zeros = countLeadingZeros(product.y);
  let exponent = exponent32(x) + exponent32(scalar) + 1 - i32(zeros);
  let own = shr64(shl64(product, zeros), 2u);
  let other = shr64(vec2<u32>(0u, significand32(z)), 2u);
  // A zero partial has no bits, so whichever exponent it is given shifts nothing away.
  let zExponent = select(exponent32(z), exponent, zSize == 0u);
  let swap = zExponent > exponent || (zExponent == exponent && less64(own, other));
  let top = max(exponent, zExponent);
  let distance = u32(abs(exponent - zExponent));
  let high = select(own, other, swap);
  let low = jam64(select(other, own, swap), distance);
  let sum = select(sub64(high, low), add64(high, low), same);
  if ((sum.x | sum.y) == 0u) { return 0u; }
  let lead = clz64(sum);
  let bits = shl64(sum, lead);
  let sumSign = select(sign, zSign, swap);
  return round_${dtype}(sumSign, top + 2 - i32(lead), bits.y | u32(bits.x != 0u));
}
`;
}
