/** Minimum and maximum: of floats by their bits (-0 below +0, a NaN loses to a number), of integers by value. */
import { hex, type WordFloat, wordFormats } from "./float-format.ts";

/** The operator that selects one of two. */
export type Extreme = "min" | "max";

/** `pick(a, b)` for floats of up to 4 bytes. 1-byte floats saturate at every hop, even here. */
export function floatExtreme(dtype: WordFloat, which: Extreme): string {
  const { width, last, nan, overflow } = wordFormats[dtype];
  const signShift = 32 - width;
  const sizes = hex(2 ** (width - 1) - 1);
  const order = which === "min" ? "<" : ">";
  return /* wgsl */ `
fn key(x: u32) -> i32 {
  let signed = i32(x << ${signShift}u) >> ${signShift}u;
  return signed ^ ((signed >> 31u) & i32(${sizes}));
}

fn saturated(x: u32) -> u32 {
  return select(x, (x & ~${sizes}) | ${hex(overflow)}, (x & ${sizes}) > ${hex(overflow)});
}

fn pick(a: u32, b: u32) -> u32 {
  let aNan = (a & ${sizes}) > ${hex(last)};
  let bNan = (b & ${sizes}) > ${hex(last)};
  if (aNan && bNan) { return ${hex(nan)}; }
  return saturated(select(a, b, aNan || (!bNan && key(b) ${order} key(a))));
}
`;
}

/** `pick(a, b)` for float64. */
export function float64Extreme(which: Extreme): string {
  const [first, second] = which === "min" ? ["b", "a"] : ["a", "b"];
  return /* wgsl */ `
fn key(x: vec2<u32>) -> vec2<u32> {
  let negative = (x.y >> 31u) == 1u;
  return select(vec2<u32>(x.x, x.y | 0x80000000u), ~x, negative);
}

fn pick(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (isNan64(a)) { return b; }
  if (isNan64(b)) { return a; }
  return select(a, b, less64(key(${first}), key(${second})));
}
`;
}
