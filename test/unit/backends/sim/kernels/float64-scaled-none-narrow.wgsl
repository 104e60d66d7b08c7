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

fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add_float64(a, b); }

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

fn start1(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> { return multiply_float64(x, scalar); }
fn fuse1(a: vec2<u32>, x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> { return fuse_float64(x, scalar, a); }

fn start(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> {
  return start1(x, scalar);
}
fn join(a: vec2<u32>, x: vec2<u32>) -> vec2<u32> {
  return join1(a, x);
}
fn fuse(a: vec2<u32>, x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> {
  return fuse1(a, x, scalar);
}
fn store(a: vec2<u32>) -> vec2<u32> { return a; }

fn finish(a: vec2<u32>, divisor: u32) -> vec2<u32> {
  return select(a, nan64, isNan64(a));
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

fn isApart(place: u32) -> bool {
  let pack = (place % 960u) >> 4u;
  return (place & 8u) != 0u && !(pack == 7u || pack == 15u || pack == 23u || pack == 31u);
}

fn fold(first: bool, a: vec2<u32>, x: vec2<u32>, kind: u32, scalar: vec2<u32>, place: u32) -> vec2<u32> {
  if (!first && kind == 0u && !isApart(place)) { return fuse(a, x, scalar); }
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
