/**
 * float64 in integer arithmetic: WGSL has no such type. Elements are pairs of words, low word first.
 *
 * As with the smaller floats, a sum or product is a sign, an exponent and 64 bits of significand: the first bit stands
 * for `2^exponent` and the last bit is jammed, until it is rounded once.
 */
export const float64Parts = /* wgsl */ `
const infinity64 = 0x7ff00000u;
const nan64 = vec2<u32>(0u, 0x7ff80000u);

fn size64(x: vec2<u32>) -> vec2<u32> { return vec2<u32>(x.x, x.y & 0x7fffffffu); }

fn isNan64(x: vec2<u32>) -> bool {
  let high = x.y & 0x7fffffffu;
  return high > infinity64 || (high == infinity64 && x.x != 0u);
}

fn isZero64(x: vec2<u32>) -> bool { return (x.x | (x.y & 0x7fffffffu)) == 0u; }

fn exponent64(x: vec2<u32>) -> i32 {
  let size = size64(x);
  return select(i32(size.y >> 20u) - 1023, -1011 - i32(clz64(size)), size.y < 0x00100000u);
}

fn significand64(x: vec2<u32>) -> vec2<u32> {
  let size = size64(x);
  if (size.y < 0x00100000u) { return shl64(size, clz64(size)); }
  let bits = shl64(size, 11u);
  return vec2<u32>(bits.x, bits.y | 0x80000000u);
}

fn round64(sign: u32, exponent: i32, significand: vec2<u32>) -> vec2<u32> {
  let below = max(-1022 - exponent, 0);
  let drop = u32(min(11 + below, 65));
  let kept = shr64(significand, drop);
  let half = shl64(vec2<u32>(1u, 0u), drop - 1u);
  let rest = sub64(significand, shl64(kept, drop));
  let above = less64(half, rest) || (all(half == rest) && (kept.x & 1u) == 1u);
  let up = drop < 65u && above;
  var bits = add64(kept, vec2<u32>(u32(up), 0u));
  if (below == 0) { bits.y += u32(exponent + 1022) << 20u; }
  if (bits.y >= infinity64) { bits = vec2<u32>(0u, infinity64); }
  return vec2<u32>(bits.x, bits.y | sign);
}
`;

/** `add_float64(a, b)`. */
export const float64Add = /* wgsl */ `
fn add_float64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let swap = less64(size64(a), size64(b));
  let large = select(a, b, swap);
  let small = select(b, a, swap);
  let sign = large.y & 0x80000000u;
  let same = sign == (small.y & 0x80000000u);
  if ((large.y & 0x7fffffffu) >= infinity64) {
    if (isNan64(large) || (!same && (small.y & 0x7fffffffu) == infinity64)) { return nan64; }
    return large;
  }
  let exponent = exponent64(large);
  let high = shr64(significand64(large), 2u);
  let low = jam64(shr64(significand64(small), 2u), u32(exponent - exponent64(small)));
  let sum = select(sub64(high, low), add64(high, low), same);
  if ((sum.x | sum.y) == 0u) { return vec2<u32>(0u, select(0u, sign, same)); }
  let zeros = clz64(sum);
  return round64(sign, exponent + 2 - i32(zeros), shl64(sum, zeros));
}
`;

/** `multiply_float64(a, b)`; needs `words128`. */
export const float64Multiply = /* wgsl */ `
fn multiply_float64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  let special = max(a.y & 0x7fffffffu, b.y & 0x7fffffffu) >= infinity64;
  if (special || isZero64(a) || isZero64(b)) {
    if (!special) { return vec2<u32>(0u, sign); }
    if (isNan64(a) || isNan64(b) || isZero64(a) || isZero64(b)) { return nan64; }
    return vec2<u32>(0u, infinity64 | sign);
  }
  let product = product128(significand64(a), significand64(b));
  let zeros = clz128(product);
  let bits = shl128(product, zeros);
  let jammed = vec2<u32>(bits.z | u32((bits.x | bits.y) != 0u), bits.w);
  return round64(sign, exponent64(a) + exponent64(b) + 1 - i32(zeros), jammed);
}
`;

/** `fuse_float64(x, scalar, partial)`: `x * scalar + partial`, rounded once; needs `words128`. */
export const float64Fuse = /* wgsl */ `
fn fuse_float64(x: vec2<u32>, scalar: vec2<u32>, partial: vec2<u32>) -> vec2<u32> {
  let sign = (x.y ^ scalar.y) & 0x80000000u;
  let zSign = partial.y & 0x80000000u;
  let same = sign == zSign;
  let factors = max(x.y & 0x7fffffffu, scalar.y & 0x7fffffffu);
  let zSize = partial.y & 0x7fffffffu;
  let nothing = isZero64(x) || isZero64(scalar);
  if (max(factors, zSize) >= infinity64 || nothing) {
    let infinite = factors >= infinity64;
    let opposed = infinite && (nothing || (zSize == infinity64 && !same));
    if (isNan64(x) || isNan64(scalar) || isNan64(partial) || opposed) { return nan64; }
    if (infinite) { return vec2<u32>(0u, infinity64 | sign); }
    if (!isZero64(partial)) { return partial; }
    return vec2<u32>(0u, select(0u, sign, same));
  }
  let product = product128(significand64(x), significand64(scalar));
  let zeros = clz128(product);
  let exponent = exponent64(x) + exponent64(scalar) + 1 - i32(zeros);
  let own = shr128(shl128(product, zeros), 2u);
  let other = shr128(vec4<u32>(0u, 0u, significand64(partial)), 2u);
  let zExponent = select(exponent64(partial), exponent, isZero64(partial));
  let swap = zExponent > exponent || (zExponent == exponent && less128(own, other));
  let high = select(own, other, swap);
  let distance = u32(min(abs(exponent - zExponent), 200));
  let low = jam128(select(other, own, swap), distance);
  let sum = select(sub128(high, low), add128(high, low), same);
  let lead = clz128(sum);
  if (lead == 128u) { return vec2<u32>(0u); }
  let bits = shl128(sum, lead);
  let jammed = vec2<u32>(bits.z | u32((bits.x | bits.y) != 0u), bits.w);
  return round64(select(sign, zSign, swap), max(exponent, zExponent) + 2 - i32(lead), jammed);
}
`;
