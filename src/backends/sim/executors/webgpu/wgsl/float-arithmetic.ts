/** The element functions of floats: `join1`, and where products are summed `start1` and `fuse1`. */
import { float64Extreme, floatExtreme } from "./extremes.ts";
import { parts32, type WordFloat } from "./float-format.ts";
import { fusion, multiplication } from "./float-multiply.ts";
import { type NativeAdd, nativeAddition } from "./float-native.ts";
import { rounding } from "./float-round.ts";
import { float64Add, float64Fuse, float64Multiply, float64Parts } from "./float64.ts";
import type { Fusing, Operation } from "./operation.ts";
import { words64 } from "./words64.ts";
import { words128 } from "./words128.ts";

/** Floats of up to 4 bytes; elements are their bits in a word. */
export function wordFloatText(
  { kind, fused }: Operation,
  dtype: WordFloat,
  native: NativeAdd,
): string {
  const base = words64 + parts32 + rounding(dtype);
  if (kind === "min" || kind === "max") return base + floatExtreme(dtype, kind);
  const product = multiplication(dtype);
  if (kind === "prod") {
    return `${base}${product}
fn join1(a: u32, b: u32) -> u32 { return multiply_${dtype}(widen_${dtype}(a), widen_${dtype}(b)); }
`;
  }
  const sum = `${base}${nativeAddition(dtype, native)}
fn join1(a: u32, b: u32) -> u32 { return sum_${dtype}(a, b); }
`;
  if (kind === "sum") return sum;
  return `${sum}${product}${fused === "none" ? "" : fusion(dtype)}
fn start1(x: u32, scalar: vec2<u32>) -> u32 { return multiply_${dtype}(widen_${dtype}(x), scalar.x); }
${fuseText(fused, "u32", `fuse_${dtype}(widen_${dtype}(x), scalar.x, a)`)}`;
}

/** float64; an element is a pair of words. */
export function float64Text({ kind, fused }: Operation): string {
  const base = words64 + float64Parts;
  if (kind === "min" || kind === "max") return base + float64Extreme(kind);
  const product = words128 + float64Multiply;
  if (kind === "prod") {
    return `${base}${product}
fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return multiply_float64(a, b); }
`;
  }
  const sum = `${base}${float64Add}
fn join1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add_float64(a, b); }
`;
  if (kind === "sum") return sum;
  return `${sum}${product}${fused === "none" ? "" : float64Fuse}
fn start1(x: vec2<u32>, scalar: vec2<u32>) -> vec2<u32> { return multiply_float64(x, scalar); }
${fuseText(fused, "vec2<u32>", "fuse_float64(x, scalar, a)")}`;
}

function fuseText(fused: Fusing, type: string, value: string): string {
  if (fused === "none") return "";
  return `fn fuse1(a: ${type}, x: ${type}, scalar: vec2<u32>) -> ${type} { return ${value}; }\n`;
}
