/** Integers of up to 4 bytes: they wrap, and an average divides once at the end, towards zero. */
import type { Extreme } from "./extremes.ts";
import { hex } from "./float-format.ts";
import type { Operation } from "./operation.ts";

/** `add(a, b)` and `multiply(a, b)`, for signed and unsigned alike. */
export function wordSums(width: number): string {
  const mask = hex(2 ** width - 1);
  return /* wgsl */ `
fn add(a: u32, b: u32) -> u32 { return (a + b) & ${mask}; }
fn multiply(a: u32, b: u32) -> u32 { return (a * b) & ${mask}; }
`;
}

/** `pick(a, b)`. */
export function wordExtreme(width: number, signed: boolean, which: Extreme): string {
  const order = which === "min" ? "<" : ">";
  const key = signed ? `i32(x << ${32 - width}u)` : "x";
  return /* wgsl */ `
fn key(x: u32) -> ${signed ? "i32" : "u32"} { return ${key}; }
fn pick(a: u32, b: u32) -> u32 { return select(a, b, key(b) ${order} key(a)); }
`;
}

/** `divide(x, divisor)`. */
export function wordDivision(width: number, signed: boolean): string {
  if (!signed) return "\nfn divide(x: u32, divisor: u32) -> u32 { return x / divisor; }\n";
  const shift = 32 - width;
  return /* wgsl */ `
fn divide(x: u32, divisor: u32) -> u32 {
  let quotient = (i32(x << ${shift}u) >> ${shift}u) / i32(divisor);
  return u32(quotient) & ${hex(2 ** width - 1)};
}
`;
}

/** The element functions of sums, products and averages: `join1` and `start1`. */
export function integerSums(
  kind: Operation["kind"],
  type: "u32" | "vec2<u32>",
  sums: string,
  division: string,
): string {
  const scalar = type === "u32" ? "scalar.x" : "scalar";
  return `${sums}${kind === "average" ? division : ""}
fn join1(a: ${type}, b: ${type}) -> ${type} { return ${kind === "prod" ? "multiply" : "add"}(a, b); }
fn start1(x: ${type}, scalar: vec2<u32>) -> ${type} { return multiply(x, ${scalar}); }
`;
}

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

/** `divide(x, divisor)`: bit by bit, by the absolute value of a negative number. */
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
