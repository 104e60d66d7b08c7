/**
 * float16 and bfloat16: four at a time as floats, rounded to the format after every hop.
 *
 * A sum of two halves rounded to a float and then to the format is rounded as if once, since 24 bits are more than twice
 * 11 and two. Products of float16 are exact floats; those of bfloat16 may be subnormal, and go there rounded to odd.
 */
import { oddFloats, oddSum, promoteHigh } from "./odd";

/** `x * s + acc` as floats rounded to odd; the products are exact doubles. */
@inline
function fusedFloats(acc: v128, x: v128, w: v128): v128 {
  const low = oddSum(f64x2.mul(f64x2.promote_low_f32x4(x), w), f64x2.promote_low_f32x4(acc));
  const high = oddSum(f64x2.mul(promoteHigh(x), w), promoteHigh(acc));
  return oddFloats(low, high);
}

/** Floats that are sums of float16, rounded to it: a subnormal sum is a whole number of least steps anyway. */
@inline
function nearestSum16(x: v128): v128 {
  const q = f32x4.mul(x, f32x4.splat(8193));
  const rounded = f32x4.sub(q, f32x4.sub(q, x));
  // From here on the nearest value is infinity; the splitting makes infinity a NaN.
  const beyond = f32x4.ge(f32x4.abs(x), f32x4.splat(65520));
  return v128.bitselect(f32x4.mul(x, f32x4.splat(f32.MAX_VALUE)), rounded, beyond);
}

/** Any floats below 2^100 rounded to float16. */
@inline
export function nearest16(x: v128): v128 {
  // 0.75 has the least subnormal of float16 as its last place.
  const anchor = f32x4.splat(0.75);
  const steps = f32x4.sub(f32x4.add(x, anchor), anchor);
  const signed = v128.or(steps, v128.and(x, i32x4.splat(0x80000000)));
  const subnormal = f32x4.lt(f32x4.abs(x), f32x4.splat(6.103515625e-5));
  return v128.bitselect(signed, nearestSum16(x), subnormal);
}

/** The bits of floats that are float16 values; every NaN is the canonical one. */
@inline
function store16(p: usize, x: v128): void {
  const moved = f32x4.mul(x, f32x4.splat(reinterpret<f32>((127 - 112) << 23)));
  const size = v128.and(i32x4.shr_u(moved, 13), i32x4.splat(0x7fff));
  const bits = v128.or(size, v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000)));
  const whole = v128.bitselect(i32x4.splat(0x7fff), bits, f32x4.ne(x, x));
  v128.store64_lane(p, i16x8.narrow_i32x4_u(whole, whole), 0);
}

@inline
function load16(p: usize): v128 {
  const bits = i32x4.shl(v128.load_ext<i16>(p), 13);
  const moved = f32x4.mul(
    v128.and(bits, i32x4.splat(0x8fffe000)),
    f32x4.splat(reinterpret<f32>((127 + 112) << 23)),
  );
  const beyond = f32x4.ge(f32x4.abs(moved), f32x4.splat(65536));
  return v128.or(moved, v128.and(beyond, i32x4.splat(0x7f800000)));
}

@final
export class Float16 {
  @inline unit(): usize { return 8; }
  @inline load(p: usize): v128 { return load16(p); }
  @inline store(p: usize, x: v128): void { store16(p, x); }
  @inline sum(a: v128, b: v128): v128 { return nearestSum16(f32x4.add(a, b)); }
  @inline prod(a: v128, b: v128): v128 { return nearest16(f32x4.mul(a, b)); }
  @inline scale(x: v128, s: v128): v128 { return nearest16(f32x4.mul(x, s)); }
  @inline fuse(acc: v128, x: v128, _s: v128, w: v128): v128 { return nearest16(fusedFloats(acc, x, w)); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

/** The symmetric kernels' sum: a float32 accumulator, rounded once when it is stored. */
@final
export class WideFloat16 {
  @inline unit(): usize { return 8; }
  @inline load(p: usize): v128 { return load16(p); }
  @inline store(p: usize, x: v128): void { store16(p, nearest16(x)); }
  @inline sum(a: v128, b: v128): v128 { return f32x4.add(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

/** Floats that are no NaN rounded to bfloat16, which has the same exponents: on the bits. */
@inline
function nearestNumber(x: v128): v128 {
  const parity = v128.and(i32x4.shr_u(x, 16), i32x4.splat(1));
  const moved = i32x4.add(i32x4.add(x, i32x4.splat(0x7fff)), parity);
  return v128.and(moved, i32x4.splat(0xffff0000));
}

/** Any floats rounded to bfloat16. */
@inline
function nearestBrain(x: v128): v128 {
  return v128.bitselect(i32x4.splat(0x7fff0000), nearestNumber(x), f32x4.ne(x, x));
}

/** Products of bfloat16: exact, but for subnormal floats, which are rounded to odd. */
@inline
function mulBrain(a: v128, b: v128): v128 {
  const product = f32x4.mul(a, b);
  const small = f32x4.lt(f32x4.abs(product), f32x4.splat(f32.MIN_NORMAL_VALUE));
  if (!v128.any_true(small)) return product;
  return oddFloats(
    f64x2.mul(f64x2.promote_low_f32x4(a), f64x2.promote_low_f32x4(b)),
    f64x2.mul(promoteHigh(a), promoteHigh(b)),
  );
}

@inline
function loadBrain(p: usize): v128 {
  return i32x4.shl(v128.load_ext<u16>(p), 16);
}

@inline
function storeBrain(p: usize, x: v128): void {
  const bits = i32x4.shr_u(x, 16);
  v128.store64_lane(p, i16x8.narrow_i32x4_u(bits, bits), 0);
}

/** Every NaN as the canonical one; its upper half is what is stored. */
@inline
function canonicalBrain(x: v128): v128 {
  return v128.bitselect(i32x4.splat(0x7fff0000), x, f32x4.ne(x, x));
}

@final
export class BFloat16 {
  @inline unit(): usize { return 8; }
  @inline load(p: usize): v128 { return loadBrain(p); }
  @inline store(p: usize, x: v128): void { storeBrain(p, x); }
  @inline sum(a: v128, b: v128): v128 { return nearestBrain(f32x4.add(a, b)); }
  @inline prod(a: v128, b: v128): v128 { return nearestBrain(mulBrain(a, b)); }
  @inline scale(x: v128, s: v128): v128 { return nearestBrain(mulBrain(x, s)); }
  @inline fuse(acc: v128, x: v128, _s: v128, w: v128): v128 { return nearestBrain(fusedFloats(acc, x, w)); }
  @inline finish(x: v128, _divisor: i32): v128 { return canonicalBrain(x); }
}

/** The symmetric kernels' sum of bfloat16. */
@final
export class WideBFloat16 {
  @inline unit(): usize { return 8; }
  @inline load(p: usize): v128 { return loadBrain(p); }
  @inline store(p: usize, x: v128): void { storeBrain(p, nearestBrain(x)); }
  @inline sum(a: v128, b: v128): v128 { return f32x4.add(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return canonicalBrain(x); }
}
