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

fn pack_bfloat16(sign: u32, exponent: i32, significand: u32) -> u32 {
  let below = max(-126 - exponent, 0);
  let drop = u32(min(24 + below, 33));
  var kept = 0u;
  var rest = u32(significand != 0u && drop == 33u);
  if (drop < 32u) { kept = significand >> drop; rest = significand << (32u - drop); }
  if (drop == 32u) { rest = significand; }
  kept += u32(rest > 0x80000000u || (rest == 0x80000000u && (kept & 1u) == 1u));
  let above = select(0u, u32(exponent - -126) << 7u, below == 0 && significand != 0u);
  return min(above + kept, 0x7f80u) | (sign >> 16u);
}

fn widen_bfloat16(x: u32) -> u32 { return x << 16u; }

fn round_bfloat16(sign: u32, exponent: i32, significand: u32) -> u32 {
  return pack_bfloat16(sign, exponent, significand);
}

fn add_bfloat16(a: u32, b: u32) -> u32 {
  let x = widen_bfloat16(a);
  let y = widen_bfloat16(b);
  let swap = (y & 0x7fffffffu) > (x & 0x7fffffffu);
  let large = select(x, y, swap);
  let small = select(y, x, swap);
  let sign = large & 0x80000000u;
  let same = sign == (small & 0x80000000u);
  if ((large & 0x7fffffffu) >= 0x7f800000u) {
    if ((large & 0x7fffffffu) > 0x7f800000u || (!same && (small & 0x7fffffffu) == 0x7f800000u)) { return 0x7fffu; }
    return 0x7f80u | (sign >> 16u);
  }
  let exponent = exponent32(large);
  let high = significand32(large) >> 2u;
  let low = jam32(significand32(small) >> 2u, u32(exponent - exponent32(small)));
  let sum = select(high - low, high + low, same);
  if (sum == 0u) { return select(0u, sign >> 16u, same); }
  let zeros = countLeadingZeros(sum);
  return round_bfloat16(sign, exponent + 2 - i32(zeros), sum << zeros);
}

fn isNormal(x: u32) -> bool { return (x & 0x7f800000u) - 0x00800000u < 0x7e800000u; }

fn sum_bfloat16(a: u32, b: u32) -> u32 {
  let x = widen_bfloat16(a);
  let y = widen_bfloat16(b);
  let sum = bitcast<u32>(bitcast<f32>(x) + bitcast<f32>(y));
  let known = (isNormal(x) || (x & 0x7fffffffu) == 0u) && (isNormal(y) || (y & 0x7fffffffu) == 0u);
  if (known && isNormal(sum)) { return (sum + 0x7fffu + ((sum >> 16u) & 1u)) >> 16u; }
  return add_bfloat16(a, b);
}

fn join1(a: u32, b: u32) -> u32 { return sum_bfloat16(a, b); }

fn canonical(x: u32) -> u32 { return select(x, 0x7fffu, (x & 0x7fffu) > 0x7f80u); }

fn start(x: u32, scalar: vec2<u32>) -> u32 {
  return x;
}
fn join(a: u32, x: u32) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 16u) { word |= (join1((a >> shift) & 0xffffu, (x >> shift) & 0xffffu) << shift); }
  return word;
}
fn store(a: u32) -> u32 { return a; }

fn finish(a: u32, divisor: u32) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 16u) { word |= (canonical((a >> shift) & 0xffffu) << shift); }
  return word;
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

  var r: array<u32, 4>;
  for (var k = 0u; k < job.w; k++) {
    let row = table[job.z + k];
    var v = load16(row.x & 0xffffu, (row.y + at) >> 4u);
    for (var i = 0u; i < 4u; i++) {
      let x = v[i];
      r[i] = fold(k == 0u, r[i], x, row.x >> 16u, row.zw, more.z + at + 4u * i);
    }
  }
  var result: vec4<u32>;
  for (var i = 0u; i < 4u; i++) {
    if (more.w == 1u) { r[i] = finish(r[i], head.w); }
    let unit = store(r[i]);
    result[i] = unit;
  }
  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    put16(target_.x, (target_.y + at) >> 4u, result);
  }
}
