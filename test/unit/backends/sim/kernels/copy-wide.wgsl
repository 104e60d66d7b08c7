@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;
fn add(a: u32, b: u32) -> u32 { return (a + b) & 0xffffffffu; }
fn multiply(a: u32, b: u32) -> u32 { return (a * b) & 0xffffffffu; }

fn join1(a: u32, b: u32) -> u32 { return add(a, b); }
fn start1(x: u32, scalar: vec2<u32>) -> u32 { return multiply(x, scalar.x); }

fn start(x: u32, scalar: vec2<u32>) -> u32 {
  return x;
}
fn join(a: u32, x: u32) -> u32 {
  return join1(a, x);
}
fn store(a: u32) -> u32 { return a; }

fn finish(a: u32, divisor: u32) -> u32 {
  return a;
}

@group(0) @binding(1) var<storage, read_write> m0: array<vec4<u32>>;

fn load16(window: u32, index: u32) -> vec4<u32> {
  return m0[index];
}

fn put16(window: u32, index: u32, value: vec4<u32>) {
  m0[index] = value; return;
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
