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

@group(0) @binding(1) var<storage, read_write> m0: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> m1: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> m2: array<atomic<u32>>;

fn word(window: u32, index: u32) -> u32 {
  switch (window) { case 0u: { return atomicLoad(&m0[index]); } case 1u: { return atomicLoad(&m1[index]); } default: { return atomicLoad(&m2[index]); } }
}

fn replace(window: u32, index: u32, value: u32) {
  switch (window) { case 0u: { atomicStore(&m0[index], value); return; } case 1u: { atomicStore(&m1[index], value); return; } default: { atomicStore(&m2[index], value); return; } }
}

fn merge(window: u32, index: u32, value: u32, mask: u32) {
  if (mask == 0u) { return; }
  if (mask == 0xffffffffu) { replace(window, index, value); return; }
  switch (window) { case 0u: { atomicAnd(&m0[index], ~mask); atomicOr(&m0[index], value & mask); return; } case 1u: { atomicAnd(&m1[index], ~mask); atomicOr(&m1[index], value & mask); return; } default: { atomicAnd(&m2[index], ~mask); atomicOr(&m2[index], value & mask); return; } }
}

fn load(window: u32, address: u32) -> u32 {
  let shift = (address & 3u) * 8u;
  let low = word(window, address >> 2u);
  if (shift == 0u) { return low; }
  return (low >> shift) | (word(window, (address >> 2u) + 1u) << (32u - shift));
}

fn put(window: u32, address: u32, value: u32, bytes: u32) {
  let shift = (address & 3u) * 8u;
  let mask = 0xffffffffu >> (32u - 8u * min(bytes, 4u));
  merge(window, address >> 2u, value << shift, mask << shift);
  if (shift > 0u) { merge(window, (address >> 2u) + 1u, value >> (32u - shift), mask >> (32u - shift)); }
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
  let at = ((tile - job.x) * 256u + lane) * 4u;
  if (at >= job.y) { return; }

  var r: u32;
  for (var k = 0u; k < job.w; k++) {
    let row = table[job.z + k];
    let x = load(row.x & 0xffffu, row.y + at);
    r = fold(k == 0u, r, x, row.x >> 16u, row.zw, more.z + at);
  }
  if (more.w == 1u) { r = finish(r, head.w); }
  let unit = store(r);
  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    put(target_.x, target_.y + at, unit, job.y - at);
  }
}
