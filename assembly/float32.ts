/** float32: one rounding for each operator; a fused product meets its partial in doubles. */
import { oddSum, promoteHigh } from "./odd";

/** The smaller of two floats: -0 lies below +0, a NaN loses to a number. */
@inline
export function leastOf(a: v128, b: v128): v128 {
  const least = f32x4.min(a, b);
  const other = v128.bitselect(a, least, f32x4.ne(b, b));
  return v128.bitselect(b, other, f32x4.ne(a, a));
}

/** The larger of two floats, by the same rules. */
@inline
export function mostOf(a: v128, b: v128): v128 {
  const most = f32x4.max(a, b);
  const other = v128.bitselect(a, most, f32x4.ne(b, b));
  return v128.bitselect(b, other, f32x4.ne(a, a));
}

/** Veltkamp's constant for 25 bits: the splitting leaves a number of 25 bits as it is. */
const splitAt25: f64 = 268435457.0;

/**
 * The sums for the last rounding. That goes wrong only where a double lies half way between two floats and the true sum
 * does not; such a double has 25 bits at most, as few sums have.
 */
@inline
function settled(product: v128, partial: v128): v128 {
  const sum = f64x2.add(product, partial);
  const q = f64x2.mul(sum, f64x2.splat(splitAt25));
  const doubtful = f64x2.eq(f64x2.sub(q, f64x2.sub(q, sum)), sum);
  if (!v128.any_true(doubtful)) return sum;
  return oddSum(product, partial);
}

@final
export class Float32 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return v128.load(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return f32x4.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return f32x4.mul(a, b); }
  @inline min(a: v128, b: v128): v128 { return leastOf(a, b); }
  @inline max(a: v128, b: v128): v128 { return mostOf(a, b); }
  @inline scale(x: v128, s: v128): v128 { return f32x4.mul(x, s); }
  @inline fuse(acc: v128, x: v128, _s: v128, w: v128): v128 {
    const low = f64x2.mul(f64x2.promote_low_f32x4(x), w);
    const high = f64x2.mul(promoteHigh(x), w);
    return v128.shuffle<i64>(
      f32x4.demote_f64x2_zero(settled(low, f64x2.promote_low_f32x4(acc))),
      f32x4.demote_f64x2_zero(settled(high, promoteHigh(acc))),
      0,
      2,
    );
  }
  @inline finish(x: v128, _divisor: i32): v128 {
    return v128.bitselect(i32x4.splat(0x7fffffff), x, f32x4.ne(x, x));
  }
}
