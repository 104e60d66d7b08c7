@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;
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

fn exponent32(x: u32) -> i32 {
  let size = x & 0x7fffffffu;
  return select(i32(size >> 23u) - 127, -118 - i32(countLeadingZeros(size)), size < 0x00800000u);
}

fn significand32(x: u32) -> u32 {
  let size = x & 0x7fffffffu;
  return select((size << 8u) | 0x80000000u, size << (countLeadingZeros(size) & 31u), size < 0x00800000u);
}

fn pack_float32(sign: u32, exponent: i32, significand: u32) -> u32 {
  let below = max(-126 - exponent, 0);
  let drop = u32(min(8 + below, 33));
  var kept = 0u;
  var rest = u32(significand != 0u && drop == 33u);
  if (drop < 32u) { kept = significand >> drop; rest = significand << (32u - drop); }
  if (drop == 32u) { rest = significand; }
  kept += u32(rest > 0x80000000u || (rest == 0x80000000u && (kept & 1u) == 1u));
  let above = select(0u, u32(exponent - -126) << 23u, below == 0 && significand != 0u);
  return min(above + kept, 0x7f800000u) | (sign >> 0u);
}

fn widen_float32(x: u32) -> u32 { return x; }

fn round_float32(sign: u32, exponent: i32, significand: u32) -> u32 {
  return pack_float32(sign, exponent, significand);
}

fn sum_float32(a: u32, b: u32) -> u32 {
  let x = widen_float32(a);
  let y = widen_float32(b);
  let sum = bitcast<u32>(bitcast<f32>(x) + bitcast<f32>(y));
  return sum;
}

fn join1(a: u32, b: u32) -> u32 { return sum_float32(a, b); }

fn canonical(x: u32) -> u32 { return select(x, 0x7fffffffu, (x & 0x7fffffffu) > 0x7f800000u); }

fn start(x: u32, scalar: vec2<u32>) -> u32 {
  return x;
}
fn join(a: u32, x: u32) -> u32 {
  return join1(a, x);
}
fn store(a: u32) -> u32 { return a; }

fn finish(a: u32, divisor: u32) -> u32 {
  return canonical(a);
}

@group(0) @binding(1) var<storage, read_write> m0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> m1: array<vec4<u32>>;

fn load16(window: u32, index: u32) -> vec4<u32> {
  switch (window) { case 0u: { return m0[index]; } default: { return m1[index]; } }
}

fn put16(window: u32, index: u32, value: vec4<u32>) {
  switch (window) { case 0u: { m0[index] = value; return; } default: { m1[index] = value; return; } }
}

fn fold(first: bool, a: u32, x: u32, kind: u32, scalar: vec2<u32>, place: u32) -> u32 {
  let y = start(x, scalar);
  if (first) { return y; }
  return join(a, y);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let head = table[0];
  let tile = group.y * head.z + group.x;
  if (tile >= head.x) { return; }
  var low = 0u;
  var high = head.y;
  while (high - low > 1u) {
    let middle = (low + high) >> 1u;
    if (table[1u + 2u * middle].x <= tile) { low = middle; } else { high = middle; }
  }
  let job = table[1u + 2u * low];
  let more = table[2u + 2u * low];
  let at = ((tile - job.x) * 256u + lane) * 16u;
  if (at >= job.y) { return; }

  let o = table[job.z];
  let v = load16(o.x & 0xffffu, (o.y + at) >> 4u);
  var r0 = fold(true, u32(), v.x, o.x >> 16u, o.zw, 0u);
  var r1 = fold(true, u32(), v.y, o.x >> 16u, o.zw, 0u);
  var r2 = fold(true, u32(), v.z, o.x >> 16u, o.zw, 0u);
  var r3 = fold(true, u32(), v.w, o.x >> 16u, o.zw, 0u);
  var k = 1u;
  for (; k + 4u <= job.w; k += 4u) {
    let o0 = table[job.z + k + 0u];
    let v0 = load16(o0.x & 0xffffu, (o0.y + at) >> 4u);
    let o1 = table[job.z + k + 1u];
    let v1 = load16(o1.x & 0xffffu, (o1.y + at) >> 4u);
    let o2 = table[job.z + k + 2u];
    let v2 = load16(o2.x & 0xffffu, (o2.y + at) >> 4u);
    let o3 = table[job.z + k + 3u];
    let v3 = load16(o3.x & 0xffffu, (o3.y + at) >> 4u);
    r0 = fold(false, r0, v0.x, o0.x >> 16u, o0.zw, more.z + at + 0u);
    r1 = fold(false, r1, v0.y, o0.x >> 16u, o0.zw, more.z + at + 4u);
    r2 = fold(false, r2, v0.z, o0.x >> 16u, o0.zw, more.z + at + 8u);
    r3 = fold(false, r3, v0.w, o0.x >> 16u, o0.zw, more.z + at + 12u);
    r0 = fold(false, r0, v1.x, o1.x >> 16u, o1.zw, more.z + at + 0u);
    r1 = fold(false, r1, v1.y, o1.x >> 16u, o1.zw, more.z + at + 4u);
    r2 = fold(false, r2, v1.z, o1.x >> 16u, o1.zw, more.z + at + 8u);
    r3 = fold(false, r3, v1.w, o1.x >> 16u, o1.zw, more.z + at + 12u);
    r0 = fold(false, r0, v2.x, o2.x >> 16u, o2.zw, more.z + at + 0u);
    r1 = fold(false, r1, v2.y, o2.x >> 16u, o2.zw, more.z + at + 4u);
    r2 = fold(false, r2, v2.z, o2.x >> 16u, o2.zw, more.z + at + 8u);
    r3 = fold(false, r3, v2.w, o2.x >> 16u, o2.zw, more.z + at + 12u);
    r0 = fold(false, r0, v3.x, o3.x >> 16u, o3.zw, more.z + at + 0u);
    r1 = fold(false, r1, v3.y, o3.x >> 16u, o3.zw, more.z + at + 4u);
    r2 = fold(false, r2, v3.z, o3.x >> 16u, o3.zw, more.z + at + 8u);
    r3 = fold(false, r3, v3.w, o3.x >> 16u, o3.zw, more.z + at + 12u);
  }
  for (; k < job.w; k++) {
    let row = table[job.z + k];
    let value = load16(row.x & 0xffffu, (row.y + at) >> 4u);
    r0 = fold(false, r0, value.x, row.x >> 16u, row.zw, more.z + at + 0u);
    r1 = fold(false, r1, value.y, row.x >> 16u, row.zw, more.z + at + 4u);
    r2 = fold(false, r2, value.z, row.x >> 16u, row.zw, more.z + at + 8u);
    r3 = fold(false, r3, value.w, row.x >> 16u, row.zw, more.z + at + 12u);
  }
  if (more.w == 1u) {
    r0 = finish(r0, head.w);
    r1 = finish(r1, head.w);
    r2 = finish(r2, head.w);
    r3 = finish(r3, head.w);
  }
  let result = vec4<u32>(store(r0), store(r1), store(r2), store(r3));
  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    put16(target_.x, (target_.y + at) >> 4u, result);
  }
}
