@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;
fn key(x: u32) -> u32 { return x; }
fn pick(a: u32, b: u32) -> u32 { return select(a, b, key(b) > key(a)); }

fn join1(a: u32, b: u32) -> u32 { return pick(a, b); }

fn start(x: u32, scalar: vec2<u32>) -> u32 {
  return x;
}
fn join(a: u32, x: u32) -> u32 {
  var word = 0u;
  for (var shift = 0u; shift < 32u; shift += 8u) { word |= (join1((a >> shift) & 0xffu, (x >> shift) & 0xffu) << shift); }
  return word;
}
fn store(a: u32) -> u32 { return a; }

fn finish(a: u32, divisor: u32) -> u32 {
  return a;
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
