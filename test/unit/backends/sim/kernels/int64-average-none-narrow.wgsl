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

fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add64(a, b); }

fn multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = product64(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

fn divide(x: vec2<u32>, divisor: u32) -> vec2<u32> {
  let negative = (x.y >> 31u) == 1u;
  let size = select(x, sub64(vec2<u32>(0u), x), negative);
  var quotient = vec2<u32>(0u, size.y / divisor);
  var rest = size.y % divisor;
  for (var bit = 32u; bit > 0u; bit--) {
    let over = rest >> 31u;
    rest = (rest << 1u) | ((size.x >> (bit - 1u)) & 1u);
    if (over == 1u || rest >= divisor) { rest -= divisor; quotient.x |= 1u << (bit - 1u); }
  }
  return select(quotient, sub64(vec2<u32>(0u), quotient), negative);
}

fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add(a, b); }
fn start1(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> { return multiply(x, scalar); }

fn start(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> {
  return x;
}
fn join(a: vec2<u32>, x: vec2<u32>) -> vec2<u32> {
  return join1(a, x);
}
fn store(a: vec2<u32>) -> vec2<u32> { return a; }

fn finish(a: vec2<u32>, divisor: u32) -> vec2<u32> {
  return divide(a, divisor);
}

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

fn fold(first: bool, a: vec2<u32>, x: vec2<u32>, kind: u32, scalar: vec2<u32>, place: u32) -> vec2<u32> {
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
  let at = ((tile - job.x) * 256u + lane) * 8u;
  if (at >= job.y) { return; }

  var r: vec2<u32>;
  for (var k = 0u; k < job.w; k++) {
    let row = table[job.z + k];
    let x = vec2<u32>(load(row.x & 0xffffu, row.y + at), load(row.x & 0xffffu, row.y + at + 4u));
    r = fold(k == 0u, r, x, row.x >> 16u, row.zw, more.z + at);
  }
  if (more.w == 1u) { r = finish(r, head.w); }
  let unit = store(r);
  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    put(target_.x, target_.y + at, unit.x, 4u); put(target_.x, target_.y + at + 4u, unit.y, 4u);
  }
}
