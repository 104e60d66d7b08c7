/** Whole numbers of 8 bytes, as pairs of words; builds on `words64`. */
import type { Extreme } from "./extremes.ts";

/** `add(a, b)` and `multiply(a, b)`: the low 64 bits, signed or not. */
export const pairSums = /* wgsl */ `
fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add64(a, b); }

fn multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = product64(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}
`;

/** `pick(a, b)`. */
export function pairExtreme(signed: boolean, which: Extreme): string {
  const flip = signed ? "0x80000000u" : "0u";
  const [first, second] = which === "min" ? ["b", "a"] : ["a", "b"];
  return /* wgsl */ `
fn key(x: vec2<u32>) -> vec2<u32> { return vec2<u32>(x.x, x.y ^ ${flip}); }
fn pick(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, less64(key(${first}), key(${second}))); }
`;
}

/** `divide(x, divisor)`: bit by bit, and by its size where it is negative. */
export function pairDivision(signed: boolean): string {
  const negative = signed ? "(x.y >> 31u) == 1u" : "false";
  return /* wgsl */ `
fn divide(x: vec2<u32>, divisor: u32) -> vec2<u32> {
  let negative = ${negative};
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
`;
}
