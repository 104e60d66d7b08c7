@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;

fn half(x: u32) -> u32 {
  let size = x & 0x7fffffffu;
  let sign = (x >> 16u) & 0x8000u;
  let normal = min((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u, 0x7c00u);
  let steps = ((size & 0x007fffffu) | 0x00800000u) >> min(126u - (min(size, 0x38800000u) >> 23u), 31u);
  return sign | select(steps, normal, size >= 0x38800000u);
}

fn start(x: u32, scalar: vec2<u32>) -> vec2<u32> {
  let bits = vec2<u32>(x << 16u, x);
  let size = (bits >> vec2<u32>(3u)) & vec2<u32>(0x0fffe000u);
  let least = vec2<u32>(0x38800000u);
  let small = bitcast<vec2<u32>>(bitcast<vec2<f32>>(size + least) - bitcast<vec2<f32>>(least));
  var wide = select(size + vec2<u32>(0x38000000u), small, size < vec2<u32>(0x00800000u));
  wide = select(wide, wide + vec2<u32>(0x38000000u), size >= vec2<u32>(0x0f800000u));
  return wide | (bits & vec2<u32>(0x80000000u));
}
fn join(a: vec2<u32>, x: vec2<u32>) -> vec2<u32> {
  let sum = bitcast<vec2<u32>>(bitcast<vec2<f32>>(a) + bitcast<vec2<f32>>(x));
  let size = sum & vec2<u32>(0x7fffffffu);
  let near = (size + vec2<u32>(0xfffu) + ((size >> vec2<u32>(13u)) & vec2<u32>(1u))) & vec2<u32>(0xffffe000u);
  let most = select(near, vec2<u32>(0x7f800000u), near >= vec2<u32>(0x47800000u));
  return select(most | (sum & vec2<u32>(0x80000000u)), vec2<u32>(0x7fffffffu), size > vec2<u32>(0x7f800000u));
}
fn finish(a: vec2<u32>, divisor: u32) -> vec2<u32> { return a; }
fn narrow(x: u32) -> u32 { return select(half(x), 0x7fffu, (x & 0x7fffffffu) > 0x7f800000u); }
fn store(a: vec2<u32>) -> u32 { return narrow(a.x) | (narrow(a.y) << 16u); }

@group(0) @binding(1) var<storage, read_write> m0: array<atomic<u32>>;

fn word(window: u32, index: u32) -> u32 {
  return atomicLoad(&m0[index]);
}

fn replace(window: u32, index: u32, value: u32) {
  atomicStore(&m0[index], value); return;
}

fn merge(window: u32, index: u32, value: u32, mask: u32) {
  if (mask == 0u) { return; }
  if (mask == 0xffffffffu) { replace(window, index, value); return; }
  atomicAnd(&m0[index], ~mask); atomicOr(&m0[index], value & mask); return;
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

fn fold(first: bool, a: vec2<u32>, x: u32, kind: u32, scalar: vec2<u32>, place: u32) -> vec2<u32> {
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

  var r: vec2<u32>;
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
