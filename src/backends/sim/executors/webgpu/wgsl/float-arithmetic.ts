/** The element functions of floats: `join1`, and where products are summed `start1` and `fuse1`. */
import { float64Extreme, floatExtreme } from "./extremes.ts";
import { hex, packing, parts32, type WordFloat, widening, wordFormats } from "./float-format.ts";
import { type NativeAdd, nativeAddition } from "./float-sum.ts";
import { float64Add, float64Fuse, float64Multiply, float64Parts } from "./float64.ts";
import type { Fusing, Operation } from "./operation.ts";
import { words64, words128 } from "./wide-words.ts";

/** Floats of up to 4 bytes; elements are their bits in a word. */
export function wordFloatText(
  { kind, fused }: Operation,
  dtype: WordFloat,
  native: NativeAdd,
): string {
  const base = words64 + parts32 + rounding(dtype);
  if (kind === "min" || kind === "max") return base + floatExtreme(dtype, kind);
  const product = multiplication(dtype);
  if (kind === "prod") {
    return `${base}${product}
fn join1(a: u32, b: u32) -> u32 { return multiply_${dtype}(widen_${dtype}(a), widen_${dtype}(b)); }
`;
  }
  const sum = `${base}${nativeAddition(dtype, native)}
fn join1(a: u32, b: u32) -> u32 { return sum_${dtype}(a, b); }
`;
  if (kind === "sum") return sum;
  return `${sum}${product}${fused === "none" ? "" : fusion(dtype)}
fn start1(x: u32, scalar: vec2<u32>) -> u32 { return multiply_${dtype}(widen_${dtype}(x), scalar.x); }
${fuseText(fused, "u32", `fuse_${dtype}(widen_${dtype}(x), scalar.x, a)`)}`;
}

/** float64; an element is a pair of words. */
export function float64Text({ kind, fused }: Operation): string {
  const base = words64 + float64Parts;
  if (kind === "min" || kind === "max") return base + float64Extreme(kind);
  const product = words128 + float64Multiply;
  if (kind === "prod") {
    return `${base}${product}
fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return multiply_float64(a, b); }
`;
  }
  const sum = `${base}${float64Add}
fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add_float64(a, b); }
`;
  if (kind === "sum") return sum;
  return `${sum}${product}${fused === "none" ? "" : float64Fuse}
fn start1(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> { return multiply_float64(x, scalar); }
${fuseText(fused, "vec2<u32>", "fuse_float64(x, scalar, a)")}`;
}

function fuseText(fused: Fusing, type: string, value: string): string {
  if (fused === "none") return "";
  return `fn fuse1(a: ${type}, x: ${type}, scalar: vec2<u32>) -> ${type} { return ${value}; }\n`;
}

/** `multiply_NAME(float32 bits, float32 bits)`. Needs `rounding` and `words64`. */
function multiplication(dtype: WordFloat): string {
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
function fusion(dtype: WordFloat): string {
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
  // A zero partial has no bits, so any exponent is right for it.
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

/** True for the floats that are rounded through float16. */
function isByteFloat(dtype: WordFloat): boolean {
  return wordFormats[dtype].width === 8;
}

/** `round_NAME(sign, exponent, significand)`, with `pack_NAME` and `widen_NAME`; 1-byte floats are rounded to float16 first. */
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
