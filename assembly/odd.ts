/**
 * Rounding to odd: an inexact value takes the neighbour whose last bit is 1, so that the next rounding, to a format at
 * least two bits shorter, is as if it had seen the exact value.
 */

/** The sums of doubles rounded to odd. */
@inline
export function oddSum(a: v128, b: v128): v128 {
  const sum = f64x2.add(a, b);
  const fromB = f64x2.sub(sum, a);
  const error = f64x2.add(f64x2.sub(a, f64x2.sub(sum, fromB)), f64x2.sub(b, fromB));
  // Exact, infinite or NaN: nothing was cut off.
  const cut = f64x2.gt(f64x2.abs(error), f64x2.splat(0));
  if (!v128.any_true(cut)) return sum;
  const even = i64x2.eq(v128.and(sum, i64x2.splat(1)), i64x2.splat(0));
  // All ones where the true sum lies further out than the rounded one: the signs agree.
  const inward = i64x2.shr_s(v128.xor(sum, error), 63);
  // One step further out, or one step (two less one) inward.
  const step = v128.or(inward, i64x2.splat(1));
  return i64x2.add(sum, v128.and(step, v128.and(cut, even)));
}

/** Two pairs of doubles as four floats, rounded to odd. */
@inline
export function oddFloats(low: v128, high: v128): v128 {
  const lowFloats = f32x4.demote_f64x2_zero(low);
  const highFloats = f32x4.demote_f64x2_zero(high);
  const floats = v128.shuffle<i64>(lowFloats, highFloats, 0, 2);
  const lowBack = f64x2.promote_low_f32x4(lowFloats);
  const highBack = f64x2.promote_low_f32x4(highFloats);
  const cut = together(f64x2.ne(lowBack, low), f64x2.ne(highBack, high));
  if (!v128.any_true(cut)) return floats;
  const further = together(
    f64x2.gt(f64x2.abs(low), f64x2.abs(lowBack)),
    f64x2.gt(f64x2.abs(high), f64x2.abs(highBack)),
  );
  const even = i32x4.eq(v128.and(floats, i32x4.splat(1)), i32x4.splat(0));
  const number = f32x4.eq(floats, floats);
  const step = v128.or(v128.not(further), i32x4.splat(1));
  return i32x4.add(floats, v128.and(v128.and(step, number), v128.and(cut, even)));
}

/** Two masks of 64-bit lanes as one of 32-bit lanes. */
@inline
export function together(low: v128, high: v128): v128 {
  return v128.shuffle<i32>(low, high, 0, 2, 4, 6);
}

/** The upper two of four floats as doubles. */
@inline
export function promoteHigh(x: v128): v128 {
  return f64x2.promote_low_f32x4(v128.shuffle<i64>(x, x, 1, 1));
}
