/**
 * The 1-byte floats: a hop computes in floats what float16 would, rounds to float16 and on to 8 bits, and saturates.
 *
 * Since every hop saturates, infinities of e5m2 become its largest value in any hop, even in a minimum (ordered.ts).
 */
import { nearest16 } from "./halves";

/** Four bytes as 32-bit words with their signs. */
@inline
function words(p: usize): v128 {
  return i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(p)));
}

@inline
function storeBytes(p: usize, bits: v128): void {
  const halves = i16x8.narrow_i32x4_u(bits, bits);
  v128.store32_lane(p, i8x16.narrow_i16x8_u(halves, halves), 0);
}

/** A NaN stays one: these operations give their first operand where no order is. */
@inline
export function clamp(x: v128, most: f32): v128 {
  return f32x4.pmax(f32x4.pmin(x, f32x4.splat(most)), f32x4.splat(-most));
}

/** Veltkamp's splitting: normal floats rounded to the bits that the constant leaves. */
@inline
export function split(x: v128, constant: f32): v128 {
  const q = f32x4.mul(x, f32x4.splat(constant));
  return f32x4.sub(q, f32x4.sub(q, x));
}

/**
 * Sums of two values of the format: a whole number of its least steps, so that no subnormal is ever rounded. Twice the
 * largest value is beyond it in float16 and here, and float16 changes nothing else either (quads.ts).
 */
@inline
function nearestSum(x: v128, most: f32, constant: f32): v128 {
  return clamp(split(clamp(x, 2 * most), constant), most);
}

/** Floats rounded to the format, saturating; `anchor` ends in the least subnormal. */
@inline
function nearest8(x: v128, most: f32, least: f32, constant: f32, anchor: f32): v128 {
  // Twice the largest value rounds to more than it, and does not overflow on the way.
  const near = clamp(x, 2 * most);
  const rounded = split(near, constant);
  const steps = f32x4.sub(f32x4.add(near, f32x4.splat(anchor)), f32x4.splat(anchor));
  const signed = v128.or(steps, v128.and(near, i32x4.splat(0x80000000)));
  const subnormal = f32x4.lt(f32x4.abs(near), f32x4.splat(least));
  return clamp(v128.bitselect(signed, rounded, subnormal), most);
}

@inline
function nearestE4(x: v128): v128 {
  return nearest8(x, 448, 0.015625, 1048577, 24576);
}

@inline
function nearestE5(x: v128): v128 {
  return nearest8(x, 57344, 6.103515625e-5, 2097153, 192);
}

@inline
function loadE4(p: usize): v128 {
  const bits = v128.and(i32x4.shl(words(p), 20), i32x4.splat(0x87f00000));
  const x = f32x4.mul(bits, f32x4.splat(reinterpret<f32>((127 + 120) << 23)));
  const nan = f32x4.ge(f32x4.abs(x), f32x4.splat(480));
  return v128.or(x, v128.and(nan, i32x4.splat(0x7fc00000)));
}

@inline
function storeE4(p: usize, x: v128): void {
  const moved = f32x4.mul(x, f32x4.splat(reinterpret<f32>((127 - 120) << 23)));
  const size = v128.and(i32x4.shr_u(moved, 20), i32x4.splat(0x7f));
  const bits = v128.or(size, v128.and(i32x4.shr_u(x, 24), i32x4.splat(0x80)));
  storeBytes(p, v128.bitselect(i32x4.splat(0x7f), bits, f32x4.ne(x, x)));
}

@inline
function loadE5(p: usize): v128 {
  const bits = v128.and(i32x4.shl(words(p), 21), i32x4.splat(0x8fe00000));
  const x = f32x4.mul(bits, f32x4.splat(reinterpret<f32>((127 + 112) << 23)));
  const beyond = f32x4.ge(f32x4.abs(x), f32x4.splat(65536));
  return v128.or(x, v128.and(beyond, i32x4.splat(0x7f800000)));
}

@inline
function storeE5(p: usize, x: v128): void {
  const moved = f32x4.mul(x, f32x4.splat(reinterpret<f32>((127 - 112) << 23)));
  const size = v128.and(i32x4.shr_u(moved, 21), i32x4.splat(0x7f));
  const bits = v128.or(size, v128.and(i32x4.shr_u(x, 24), i32x4.splat(0x80)));
  storeBytes(p, v128.bitselect(i32x4.splat(0x7f), bits, f32x4.ne(x, x)));
}

@final
export class Float8E4M3 {
  @inline unit(): usize { return 4; }
  @inline load(p: usize): v128 { return loadE4(p); }
  @inline store(p: usize, x: v128): void { storeE4(p, x); }
  @inline sum(a: v128, b: v128): v128 { return nearestSum(f32x4.add(a, b), 448, 1048577); }
  @inline prod(a: v128, b: v128): v128 { return nearestE4(nearest16(f32x4.mul(a, b))); }
  @inline scale(x: v128, s: v128): v128 { return this.prod(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return this.sum(acc, this.scale(x, s)); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

@final
export class Float8E5M2 {
  @inline unit(): usize { return 4; }
  @inline load(p: usize): v128 { return loadE5(p); }
  @inline store(p: usize, x: v128): void { storeE5(p, x); }
  @inline sum(a: v128, b: v128): v128 { return nearestSum(f32x4.add(a, b), 57344, 2097153); }
  @inline prod(a: v128, b: v128): v128 { return nearestE5(nearest16(clamp(f32x4.mul(a, b), 131072))); }
  @inline scale(x: v128, s: v128): v128 { return this.prod(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return this.sum(acc, this.scale(x, s)); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

/** The symmetric kernels' sum of e4m3: straight from float32, saturating. */
@final
export class WideFloat8E4M3 {
  @inline unit(): usize { return 4; }
  @inline load(p: usize): v128 { return loadE4(p); }
  @inline store(p: usize, x: v128): void { storeE4(p, nearestE4(x)); }
  @inline sum(a: v128, b: v128): v128 { return f32x4.add(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

/** The symmetric kernels' sum of e5m2. */
@final
export class WideFloat8E5M2 {
  @inline unit(): usize { return 4; }
  @inline load(p: usize): v128 { return loadE5(p); }
  @inline store(p: usize, x: v128): void { storeE5(p, nearestE5(x)); }
  @inline sum(a: v128, b: v128): v128 { return f32x4.add(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}
