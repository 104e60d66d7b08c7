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

fn pack_float16(sign: u32, exponent: i32, significand: u32) -> u32 {
  let below = max(-14 - exponent, 0);
  let drop = u32(min(21 + below, 33));
  var kept = 0u;
  var rest = u32(significand != 0u && drop == 33u);
  if (drop < 32u) { kept = significand >> drop; rest = significand << (32u - drop); }
  if (drop == 32u) { rest = significand; }
  kept += u32(rest > 0x80000000u || (rest == 0x80000000u && (kept & 1u) == 1u));
  let above = select(0u, u32(exponent - -14) << 10u, below == 0 && significand != 0u);
  return min(above + kept, 0x7c00u) | (sign >> 16u);
}

fn widen_float16(x: u32) -> u32 {
  let sign = (x << 16u) & 0x80000000u;
  let size = x & 0x7fffu;
  if (size >= 0x7c00u) { return sign | (size << 13u) | 0x7f800000u; }
  if (size >= 0x400u) { return sign | ((size << 13u) + 0x38000000u); }
  if (size == 0u) { return sign; }
  let zeros = countLeadingZeros(size);
  return sign | (((133u - zeros) << 23u) + (size << (zeros - 8u)));
}

fn round_float16(sign: u32, exponent: i32, significand: u32) -> u32 {
  return pack_float16(sign, exponent, significand);
}

fn add_float16(a: u32, b: u32) -> u32 {
  let x = widen_float16(a);
  let y = widen_float16(b);
  let swap = (y & 0x7fffffffu) > (x & 0x7fffffffu);
  let large = select(x, y, swap);
  let small = select(y, x, swap);
  let sign = large & 0x80000000u;
  let same = sign == (small & 0x80000000u);
  if ((large & 0x7fffffffu) >= 0x7f800000u) {
    if ((large & 0x7fffffffu) > 0x7f800000u || (!same && (small & 0x7fffffffu) == 0x7f800000u)) { return 0x7fffu; }
    return 0x7c00u | (sign >> 16u);
  }
  let exponent = exponent32(large);
  let high = significand32(large) >> 2u;
  let low = jam32(significand32(small) >> 2u, u32(exponent - exponent32(small)));
  let sum = select(high - low, high + low, same);
  if (sum == 0u) { return select(0u, sign >> 16u, same); }
  let zeros = countLeadingZeros(sum);
  return round_float16(sign, exponent + 2 - i32(zeros), sum << zeros);
}

fn sum_float16(a: u32, b: u32) -> u32 { return add_float16(a, b); }

fn join1(a: u32, b: u32) -> u32 { return sum_float16(a, b); }

fn multiply_float16(x: u32, y: u32) -> u32 {
  let sign = (x ^ y) & 0x80000000u;
  let xSize = x & 0x7fffffffu;
  let ySize = y & 0x7fffffffu;
  if (xSize >= 0x7f800000u || ySize >= 0x7f800000u) {
    if (xSize > 0x7f800000u || ySize > 0x7f800000u || xSize == 0u || ySize == 0u) { return 0x7fffu; }
    return 0x7c00u | (sign >> 16u);
  }
  if (xSize == 0u || ySize == 0u) { return sign >> 16u; }
  let product = product64(significand32(x), significand32(y));
  let zeros = countLeadingZeros(product.y);
  let bits = shl64(product, zeros);
  return round_float16(sign, exponent32(x) + exponent32(y) + 1 - i32(zeros), bits.y | u32(bits.x != 0u));
}

fn fuse_float16(x: u32, scalar: u32, partial: u32) -> u32 {
  let z = widen_float16(partial);
  let sign = (x ^ scalar) & 0x80000000u;
  let zSign = z & 0x80000000u;
  let zSize = z & 0x7fffffffu;
  let same = sign == zSign;
  let more = max(x & 0x7fffffffu, scalar & 0x7fffffffu);
  let less = min(x & 0x7fffffffu, scalar & 0x7fffffffu);
  if (max(more, zSize) >= 0x7f800000u || less == 0u) {
    let opposed = more == 0x7f800000u && (less == 0u || (zSize == 0x7f800000u && !same));
    if (more > 0x7f800000u || zSize > 0x7f800000u || opposed) { return 0x7fffu; }
    if (more == 0x7f800000u) { return 0x7c00u | (sign >> 16u); }
    if (zSize != 0u) { return partial; }
    return select(0u, sign >> 16u, same);
  }
  let product = product64(significand32(x), significand32(scalar));
  let zeros = countLeadingZeros(product.y);
  let exponent = exponent32(x) + exponent32(scalar) + 1 - i32(zeros);
  let own = shr64(shl64(product, zeros), 2u);
  let other = shr64(vec2<u32>(0u, significand32(z)), 2u);
  // A zero partial has no bits, so any exponent is right for it.
  let zExponent = select(exponent32(z), exponent, zSize == 0u);
  let swap = zExponent > exponent || (zExponent == exponent && less64(own, other));
  let top = max(exponent, zExponent);
  let distance = u32(abs(exponent - zExponent));
  let high = select(own, other, swap);
  let low = jam64(select(other, own, swap), distance);
  let sum = select(sub64(high, low), add64(high, low), same);
  if ((sum.x | sum.y) == 0u) { return 0u; }
  let lead = clz64(sum);
  let bits = shl64(sum, lead);
  let sumSign = select(sign, zSign, swap);
  return round_float16(sumSign, top + 2 - i32(lead), bits.y | u32(bits.x != 0u));
}

fn start1(x: u32, scalar: vec2<u32>) -> u32 { return multiply_float16(widen_float16(x), scalar.x); }
fn fuse1(a: u32, x: u32, scalar: vec2<u32>) -> u32 { return fuse_float16(widen_float16(x), scalar.x, a); }

fn canonical(x: u32) -> u32 { return select(x, 0x7fffu, (x & 0x7fffu) > 0x7c00u); }

fn start(x: u32, scalar: vec2<u32>) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 16u) { word |= (start1((x >> shift) & 0xffffu, scalar) << shift); }
  return word;
}
fn join(a: u32, x: u32) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 16u) { word |= (join1((a >> shift) & 0xffffu, (x >> shift) & 0xffffu) << shift); }
  return word;
}
fn fuse(a: u32, x: u32, scalar: vec2<u32>) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 16u) { word |= (fuse1((a >> shift) & 0xffffu, (x >> shift) & 0xffffu, scalar) << shift); }
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
  if (!first && kind == 0u) { return fuse(a, x, scalar); }
  var y = x;
  if (kind != 2u) { y = start(x, scalar); }
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
