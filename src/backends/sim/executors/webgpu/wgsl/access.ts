/**
 * Memory access of kernels: through windows, which are ranges of the device's buffers, each bound once.
 *
 * *Wide* kernels move 16 bytes at a time, from addresses that are multiples of 16. *Narrow* ones move a unit at a time, from
 * any address: two words are read and shifted into one. Words shared with other elements are written by two atomic operations
 * that do not change the other bits.
 */

/** Ways in which a kernel moves bytes. */
export type Access = "wide" | "narrow";

/** The functions of an access, and the bindings that they need. */
export function accessText(access: Access, windows: number): string {
  return access === "wide" ? wideAccess(windows) : narrowAccess(windows);
}

/** Bindings 1 to `windows`; binding 0 is the table. */
function bindings(windows: number, type: string): string {
  return Array.from(
    { length: windows },
    (_, i) => `@group(0) @binding(${i + 1}) var<storage, read_write> m${i}: array<${type}>;`,
  ).join("\n");
}

/** A statement for the window that is named by `window`. */
function inWindow(windows: number, statement: (memory: string) => string): string {
  if (windows === 1) return statement("m0");
  const cases = Array.from(
    { length: windows - 1 },
    (_, i) => `case ${i}u: { ${statement(`m${i}`)} }`,
  );
  return `switch (window) { ${cases.join(" ")} default: { ${statement(`m${windows - 1}`)} } }`;
}

/** `load16(window, index)` and `put16(window, index, value)`; an index counts 16 bytes. */
function wideAccess(windows: number): string {
  return /* wgsl */ `
${bindings(windows, "vec4<u32>")}

fn load16(window: u32, index: u32) -> vec4<u32> {
  ${inWindow(windows, (memory) => `return ${memory}[index];`)}
}

fn put16(window: u32, index: u32, value: vec4<u32>) {
  ${inWindow(windows, (memory) => `${memory}[index] = value; return;`)}
}
`;
}

/** `load(window, address)` of a word; `put(window, address, value, bytes)` of its first 1 to 4 bytes. */
function narrowAccess(windows: number): string {
  return /* wgsl */ `
${bindings(windows, "atomic<u32>")}

fn word(window: u32, index: u32) -> u32 {
  ${inWindow(windows, (memory) => `return atomicLoad(&${memory}[index]);`)}
}

fn replace(window: u32, index: u32, value: u32) {
  ${inWindow(windows, (memory) => `atomicStore(&${memory}[index], value); return;`)}
}

fn merge(window: u32, index: u32, value: u32, mask: u32) {
  if (mask == 0u) { return; }
  if (mask == 0xffffffffu) { replace(window, index, value); return; }
  ${inWindow(windows, (memory) => `atomicAnd(&${memory}[index], ~mask); atomicOr(&${memory}[index], value & mask); return;`)}
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
`;
}
