/** Whole numbers of 128 bits as four words, low word first; builds on `words64`. */
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
