/**
 * Integers of 8, 32 and 64 bits: they wrap; signed and unsigned differ in comparing and dividing only.
 *
 * A class is what a chain does with 16 bytes of one dtype; nothing is ever made of it, its methods are inlined.
 */

/** Bytes that a vector takes in memory, loading and storing: the same for every type that needs no decoding. */
@inline
function loadWhole(address: usize): v128 {
  return v128.load(address);
}

/** Products of bytes: even and odd bytes as 16-bit lanes. */
@inline
function mulBytes(a: v128, b: v128): v128 {
  const even = i16x8.mul(a, b);
  const odd = i16x8.mul(i16x8.shr_u(a, 8), i16x8.shr_u(b, 8));
  return v128.or(v128.and(even, i16x8.splat(0xff)), i16x8.shl(odd, 8));
}

/** Truncated quotients of four small whole numbers; a float32 tells all quotients of bytes apart. */
@inline
function quotients(x: v128, divisor: i32): v128 {
  return i32x4.trunc_sat_f32x4_s(
    f32x4.div(f32x4.convert_i32x4_s(x), f32x4.splat(<f32>divisor)),
  );
}

@final
export class Int8 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i8x16.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return mulBytes(a, b); }
  @inline min(a: v128, b: v128): v128 { return i8x16.min_s(a, b); }
  @inline max(a: v128, b: v128): v128 { return i8x16.max_s(a, b); }
  @inline scale(x: v128, s: v128): v128 { return mulBytes(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return this.sum(acc, mulBytes(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    const low = i16x8.extend_low_i8x16_s(x);
    const high = i16x8.extend_high_i8x16_s(x);
    return i8x16.narrow_i16x8_s(
      i16x8.narrow_i32x4_s(
        quotients(i32x4.extend_low_i16x8_s(low), divisor),
        quotients(i32x4.extend_high_i16x8_s(low), divisor),
      ),
      i16x8.narrow_i32x4_s(
        quotients(i32x4.extend_low_i16x8_s(high), divisor),
        quotients(i32x4.extend_high_i16x8_s(high), divisor),
      ),
    );
  }
}

@final
export class Uint8 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i8x16.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return mulBytes(a, b); }
  @inline min(a: v128, b: v128): v128 { return i8x16.min_u(a, b); }
  @inline max(a: v128, b: v128): v128 { return i8x16.max_u(a, b); }
  @inline scale(x: v128, s: v128): v128 { return mulBytes(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return this.sum(acc, mulBytes(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    const low = i16x8.extend_low_i8x16_u(x);
    const high = i16x8.extend_high_i8x16_u(x);
    return i8x16.narrow_i16x8_u(
      i16x8.narrow_i32x4_s(
        quotients(i32x4.extend_low_i16x8_u(low), divisor),
        quotients(i32x4.extend_high_i16x8_u(low), divisor),
      ),
      i16x8.narrow_i32x4_s(
        quotients(i32x4.extend_low_i16x8_u(high), divisor),
        quotients(i32x4.extend_high_i16x8_u(high), divisor),
      ),
    );
  }
}

@final
export class Int32 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i32x4.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return i32x4.mul(a, b); }
  @inline min(a: v128, b: v128): v128 { return i32x4.min_s(a, b); }
  @inline max(a: v128, b: v128): v128 { return i32x4.max_s(a, b); }
  @inline scale(x: v128, s: v128): v128 { return i32x4.mul(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return i32x4.add(acc, i32x4.mul(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    // 32 bits over any number of ranks leave a double room for the exact quotient.
    const by = f64x2.splat(<f64>divisor);
    const low = f64x2.div(f64x2.convert_low_i32x4_s(x), by);
    const high = f64x2.div(f64x2.convert_low_i32x4_s(v128.shuffle<i64>(x, x, 1, 1)), by);
    return v128.shuffle<i64>(
      i32x4.trunc_sat_f64x2_s_zero(low),
      i32x4.trunc_sat_f64x2_s_zero(high),
      0,
      2,
    );
  }
}

@final
export class Uint32 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i32x4.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return i32x4.mul(a, b); }
  @inline min(a: v128, b: v128): v128 { return i32x4.min_u(a, b); }
  @inline max(a: v128, b: v128): v128 { return i32x4.max_u(a, b); }
  @inline scale(x: v128, s: v128): v128 { return i32x4.mul(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return i32x4.add(acc, i32x4.mul(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    const by = f64x2.splat(<f64>divisor);
    const low = f64x2.div(f64x2.convert_low_i32x4_u(x), by);
    const high = f64x2.div(f64x2.convert_low_i32x4_u(v128.shuffle<i64>(x, x, 1, 1)), by);
    return v128.shuffle<i64>(
      i32x4.trunc_sat_f64x2_u_zero(low),
      i32x4.trunc_sat_f64x2_u_zero(high),
      0,
      2,
    );
  }
}

@final
export class Int64 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i64x2.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return i64x2.mul(a, b); }
  @inline min(a: v128, b: v128): v128 { return v128.bitselect(a, b, i64x2.lt_s(a, b)); }
  @inline max(a: v128, b: v128): v128 { return v128.bitselect(a, b, i64x2.gt_s(a, b)); }
  @inline scale(x: v128, s: v128): v128 { return i64x2.mul(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return i64x2.add(acc, i64x2.mul(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    const first = v128.extract_lane<i64>(x, 0) / <i64>divisor;
    return v128.replace_lane<i64>(
      i64x2.splat(first),
      1,
      v128.extract_lane<i64>(x, 1) / <i64>divisor,
    );
  }
}

@final
export class Uint64 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return loadWhole(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return i64x2.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return i64x2.mul(a, b); }
  @inline min(a: v128, b: v128): v128 { return v128.bitselect(a, b, this.less(a, b)); }
  @inline max(a: v128, b: v128): v128 { return v128.bitselect(a, b, this.less(b, a)); }
  @inline scale(x: v128, s: v128): v128 { return i64x2.mul(x, s); }
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 { return i64x2.add(acc, i64x2.mul(x, s)); }
  @inline finish(x: v128, divisor: i32): v128 {
    if (divisor == 0) return x;
    const first = v128.extract_lane<u64>(x, 0) / <u64>divisor;
    return v128.replace_lane<u64>(
      i64x2.splat(first),
      1,
      v128.extract_lane<u64>(x, 1) / <u64>divisor,
    );
  }
  /** Flipping the sign bits turns the unsigned order into the signed one. */
  @inline less(a: v128, b: v128): v128 {
    const flip = i64x2.splat(i64.MIN_VALUE);
    return i64x2.lt_s(v128.xor(a, flip), v128.xor(b, flip));
  }
}
