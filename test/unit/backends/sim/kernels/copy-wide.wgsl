@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> m0: array<vec4<u32>>;

fn load16(window: u32, index: u32) -> vec4<u32> {
  return m0[index];
}

fn put16(window: u32, index: u32, value: vec4<u32>) {
  m0[index] = value; return;
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

  let source = table[job.z];
  let value = load16(source.x & 0xffffu, (source.y + at) >> 4u);
  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    put16(target_.x, (target_.y + at) >> 4u, value);
  }
}
