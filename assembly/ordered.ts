/**
 * The least and the greatest of 16-bit and 1-byte floats, without making floats of them: a vector of bits at a time is put
 * in order as signed integers.
 *
 * Magnitudes are in order as they are; flipping those of negative values turns them round, and once more back. -0 comes to
 * lie below +0. A NaN loses to every number, so it is made all ones first, which becomes the least of all integers. The
 * least is the greatest with all signs flipped before and after; so all ones end as the canonical NaN, 0x7fff or 0x7f.
 */

@inline
function turned16(x: v128): v128 {
  return v128.xor(x, v128.and(i16x8.shr_s(x, 15), i16x8.splat(0x7fff)));
}

/** `last` is the last magnitude that is no NaN. */
@inline
function ordered16(x: v128, last: i16): v128 {
  const nan = i16x8.gt_s(v128.and(x, i16x8.splat(0x7fff)), i16x8.splat(last));
  return turned16(v128.or(x, nan));
}

@inline
function flipped16(x: v128): v128 {
  return v128.xor(x, i16x8.splat(i16.MIN_VALUE));
}

@inline
function turned8(x: v128): v128 {
  const negative = i8x16.lt_s(x, i8x16.splat(0));
  return v128.xor(x, v128.and(negative, i8x16.splat(0x7f)));
}

@inline
function ordered8(x: v128, last: i8): v128 {
  const nan = i8x16.gt_s(v128.and(x, i8x16.splat(0x7f)), i8x16.splat(last));
  return turned8(v128.or(x, nan));
}

@inline
function flipped8(x: v128): v128 {
  return v128.xor(x, i8x16.splat(i8.MIN_VALUE));
}

/** What tells the formats apart: the last magnitude that is no NaN, and what a hop does to the greater of two. */
@final
export class OfFloat16 {
  @inline last(): i16 { return 0x7c00; }
}

@final
export class OfBFloat16 {
  @inline last(): i16 { return 0x7f80; }
}

@final
export class OfE4M3 {
  @inline last(): i8 { return 0x7e; }
  @inline hop(order: v128): v128 { return order; }
}

/** Infinities become the largest values; -infinity is in order what lies one below the largest negative value. */
@final
export class OfE5M2 {
  @inline last(): i8 { return 0x7c; }
  @inline hop(order: v128): v128 {
    const most = i8x16.min_s(order, i8x16.splat(0x7b));
    return i8x16.sub(most, i8x16.eq(most, i8x16.splat(<i8>0x83)));
  }
}

@final
export class Least16<F> {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return ordered16(flipped16(v128.load(p)), changetype<F>(0).last()); }
  @inline store(p: usize, x: v128): void { v128.store(p, flipped16(turned16(x))); }
  @inline min(a: v128, b: v128): v128 { return i16x8.max_s(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

@final
export class Most16<F> {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return ordered16(v128.load(p), changetype<F>(0).last()); }
  @inline store(p: usize, x: v128): void {
    const nan = i16x8.eq(x, i16x8.splat(i16.MIN_VALUE));
    v128.store(p, v128.xor(turned16(x), v128.and(nan, i16x8.splat(i16.MIN_VALUE))));
  }
  @inline max(a: v128, b: v128): v128 { return i16x8.max_s(a, b); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

@final
export class Least8<F> {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return ordered8(flipped8(v128.load(p)), changetype<F>(0).last()); }
  @inline store(p: usize, x: v128): void { v128.store(p, flipped8(turned8(x))); }
  @inline min(a: v128, b: v128): v128 { return changetype<F>(0).hop(i8x16.max_s(a, b)); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}

@final
export class Most8<F> {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return ordered8(v128.load(p), changetype<F>(0).last()); }
  @inline store(p: usize, x: v128): void {
    const nan = i8x16.eq(x, i8x16.splat(i8.MIN_VALUE));
    v128.store(p, v128.xor(turned8(x), v128.and(nan, i8x16.splat(i8.MIN_VALUE))));
  }
  @inline max(a: v128, b: v128): v128 { return changetype<F>(0).hop(i8x16.max_s(a, b)); }
  @inline finish(x: v128, _divisor: i32): v128 { return x; }
}
