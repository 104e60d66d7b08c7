/**
 * Sums of float16, both halves of a word at once, where a device's own arithmetic is exact.
 *
 * `halves` adds in float16; `converted` adds in float32 and has the device convert; `all` adds in float32 and rounds bits.
 * Rounding twice is rounding once here: 24 bits of significand are twice 11 and two more. Below the least normal half a
 * sum is a whole number of its steps, which has at most 10 bits: rounding to 11 leaves it alone.
 */
import { hex, wordFormats } from "./float-format.ts";
import { directivesOf, half, type NativeAdd, pairSums } from "./float-native.ts";

/** The forms that add pairs. */
export type PairForm = Extract<NativeAdd, "halves" | "converted" | "all">;

/** True for the forms that add pairs. */
export function addsPairs(native: NativeAdd): native is PairForm {
  return native === "halves" || native === "converted" || native === "all";
}

const { nan } = wordFormats.float16;

const packed = /* wgsl */ `
fn start(x: u32, scalar: vec2<u32>) -> u32 { return x; }
fn join(a: u32, x: u32) -> u32 { return pairSum(a, x); }
fn finish(a: u32, divisor: u32) -> u32 {
  let low = select(a & 0xffffu, ${hex(nan)}, (a & 0x7fffu) > 0x7c00u);
  let high = select(a & 0xffff0000u, ${hex(nan * 0x10000)}, (a & 0x7fff0000u) > 0x7c000000u);
  return low | high;
}
fn store(a: u32) -> u32 { return a; }
`;

/** The running value is two float32, rounded to halves at every hop. A least normal added and taken away finds subnormals. */
const spread = /* wgsl */ `
${half}
fn start(x: u32, scalar: vec2<u32>) -> vec2<u32> {
  let bits = vec2<u32>(x << 16u, x);
  let size = (bits >> vec2<u32>(3u)) & vec2<u32>(0x0fffe000u);
  let least = vec2<u32>(0x38800000u);
  let small = bitcast<vec2<u32>>(bitcast<vec2<f32>>(size + least) - bitcast<vec2<f32>>(least));
  var wide = select(size + vec2<u32>(0x38000000u), small, size < vec2<u32>(0x00800000u));
  wide = select(wide, wide + vec2<u32>(0x38000000u), size >= vec2<u32>(0x0f800000u));
  return wide | (bits & vec2<u32>(0x80000000u));
}
fn join(a: vec2<u32>, x: vec2<u32>) -> vec2<u32> {
  let sum = bitcast<vec2<u32>>(bitcast<vec2<f32>>(a) + bitcast<vec2<f32>>(x));
  let size = sum & vec2<u32>(0x7fffffffu);
  let near = (size + vec2<u32>(0xfffu) + ((size >> vec2<u32>(13u)) & vec2<u32>(1u))) & vec2<u32>(0xffffe000u);
  let most = select(near, vec2<u32>(0x7f800000u), near >= vec2<u32>(0x47800000u));
  return select(most | (sum & vec2<u32>(0x80000000u)), vec2<u32>(0x7fffffffu), size > vec2<u32>(0x7f800000u));
}
fn finish(a: vec2<u32>, divisor: u32) -> vec2<u32> { return a; }
fn narrow(x: u32) -> u32 { return select(half(x), ${hex(nan)}, (x & 0x7fffffffu) > 0x7f800000u); }
fn store(a: vec2<u32>) -> u32 { return narrow(a.x) | (narrow(a.y) << 16u); }
`;

/** The functions of a kernel, the type of what is running, and the directives that must come first. */
export function halfSum(form: PairForm): {
  readonly text: string;
  readonly running: string;
  readonly directives: string;
} {
  if (form === "all") return { text: spread, running: "vec2<u32>", directives: "" };
  return { text: pairSums[form] + packed, running: "u32", directives: directivesOf(form) };
}
