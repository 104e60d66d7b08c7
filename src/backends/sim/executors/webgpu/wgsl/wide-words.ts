/**
 * Integers of 64 and 128 bits as two and four words, low word first: WGSL has none of its own.
 *
 * A *jam* is a right shift that sets the last bit of the result when anything but zeros is shifted out. It keeps a later
 * rounding right.
 */

/** Integers of 64 bits as pairs of words, low word first. */
export const words64 = /* wgsl */ `
fn jam32(x: u32, n: u32) -> u32 {
  if (n == 0u) { return x; }
  if (n > 31u) { return u32(x != 0u); }
  return (x >> n) | u32((x << (32u - n)) != 0u);
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn clz64(a: vec2<u32>) -> u32 {
  return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}

fn shl64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n == 0u) { return a; }
  if (n > 63u) { return vec2<u32>(0u); }
  if (n > 31u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}

fn shr64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n == 0u) { return a; }
  if (n > 63u) { return vec2<u32>(0u); }
  if (n > 31u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}

fn jam64(a: vec2<u32>, n: u32) -> vec2<u32> {
  let kept = shr64(a, n);
  return vec2<u32>(kept.x | u32(any(shl64(kept, n) != a)), kept.y);
}

fn product64(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let cross = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return vec2<u32>((cross << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (cross >> 16u));
}
`;

/** Integers of 128 bits as four words, low word first; builds on `words64`. */
export const words128 = /* wgsl */ `
fn add128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let low = add64(a.xy, b.xy);
  let carry = vec2<u32>(u32(less64(low, a.xy)), 0u);
  return vec4<u32>(low, add64(add64(a.zw, b.zw), carry));
}

fn sub128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let borrow = vec2<u32>(u32(less64(a.xy, b.xy)), 0u);
  return vec4<u32>(sub64(a.xy, b.xy), sub64(sub64(a.zw, b.zw), borrow));
}

fn less128(a: vec4<u32>, b: vec4<u32>) -> bool {
  return less64(a.zw, b.zw) || (all(a.zw == b.zw) && less64(a.xy, b.xy));
}

fn clz128(a: vec4<u32>) -> u32 {
  return select(clz64(a.zw), 64u + clz64(a.xy), all(a.zw == vec2<u32>(0u)));
}

fn shl128(a: vec4<u32>, n: u32) -> vec4<u32> {
  if (n == 0u) { return a; }
  if (n > 63u) { return vec4<u32>(0u, 0u, shl64(a.xy, n - 64u)); }
  return vec4<u32>(shl64(a.xy, n), shl64(a.zw, n) | shr64(a.xy, 64u - n));
}

fn shr128(a: vec4<u32>, n: u32) -> vec4<u32> {
  if (n == 0u) { return a; }
  if (n > 63u) { return vec4<u32>(shr64(a.zw, n - 64u), 0u, 0u); }
  return vec4<u32>(shr64(a.xy, n) | shl64(a.zw, 64u - n), shr64(a.zw, n));
}

fn jam128(a: vec4<u32>, n: u32) -> vec4<u32> {
  let kept = shr128(a, n);
  return vec4<u32>(kept.x | u32(any(shl128(kept, n) != a)), kept.yzw);
}

fn product128(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  let low = product64(a.x, b.x);
  let left = product64(a.y, b.x);
  let right = product64(a.x, b.y);
  let whole = vec4<u32>(low, product64(a.y, b.y));
  return add128(add128(whole, vec4<u32>(0u, left, 0u)), vec4<u32>(0u, right, 0u));
}
`;
