/**
 * `sum_NAME(a, b)`: the sum of two elements, by the device's own float32 addition where that is known to be exact.
 *
 * WGSL promises neither subnormals, NaN and infinity nor a rounding mode, so a device is probed first (`probe.ts`). A sum of
 * two halves in float32, rounded to the half again, is the correctly rounded one: 24 bits are twice 11 and two more. Values
 * that a device may add otherwise go to `add_NAME`, which uses integers only.
 */
import { hex, type WordFloat, wordFormats } from "./float-format.ts";
import type { Operation } from "./operation.ts";

/**
 * The range in which a device's float32 addition serves the sums of a dtype: `all` values; `normal` ones, with a normal result;
 * `none`. For float16 also whether the device converts exactly (`converted`), or adds `halves` themselves.
 */
export type NativeAdd = "halves" | "converted" | "all" | "normal" | "none";

/** Trust in a device, by dtype; sums of 1-byte floats and of float64 always use integers. */
export interface NativeAdds {
  readonly float32: Exclude<NativeAdd, "halves" | "converted">;
  readonly bfloat16: Exclude<NativeAdd, "halves" | "converted">;
  readonly float16: NativeAdd;
}

/** The addition in kernels of an operation; symmetric sums run in float32. */
export function nativeFor({ dtype, kind }: Operation, natives: NativeAdds): NativeAdd {
  if (kind === "wide") return natives.float32;
  if (kind !== "sum" && kind !== "scaled") return "none";
  return dtype === "float32" || dtype === "bfloat16" || dtype === "float16"
    ? natives[dtype]
    : "none";
}

/** Rounds the float32 bits of a sum to the format; NaN aside. */
const narrowed: { readonly [D in WordFloat]?: string } = {
  float32: "sum",
  bfloat16: "(sum + 0x7fffu + ((sum >> 16u) & 1u)) >> 16u",
  float16: "half(sum)",
};

/** A sum of halves below the least normal one is exact. */
const half = /* wgsl */ `
fn half(x: u32) -> u32 {
  let size = x & 0x7fffffffu;
  let sign = (x >> 16u) & 0x8000u;
  let normal = min((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u, 0x7c00u);
  let steps = ((size & 0x007fffffu) | 0x00800000u) >> min(126u - (min(size, 0x38800000u) >> 23u), 31u);
  return sign | select(steps, normal, size >= 0x38800000u);
}
`;

/** `pairSum(a, b)` of two packed halves each, in a few instructions. */
const pairSums: { readonly [F in "halves" | "converted"]: string } = {
  halves: /* wgsl */ `
fn pairSum(a: u32, b: u32) -> u32 { return bitcast<u32>(bitcast<vec2<f16>>(a) + bitcast<vec2<f16>>(b)); }
`,
  converted: /* wgsl */ `
fn pairSum(a: u32, b: u32) -> u32 { return pack2x16float(unpack2x16float(a) + unpack2x16float(b)); }
`,
};

/** The directives of a kernel, which precede all other text. */
export function directivesOf(native: NativeAdd): string {
  return native === "halves" ? "enable f16;\n" : "";
}

/** `add_NAME(a, b)`: the sum of two elements, rounded once, for floats of up to 4 bytes. Needs `rounding` and `words64`. */
export function nativeAddition(dtype: WordFloat, native: NativeAdd): string {
  const result = narrowed[dtype];
  if (native === "none" || result === undefined) {
    return `${addition(dtype)}
fn sum_${dtype}(a: u32, b: u32) -> u32 { return add_${dtype}(a, b); }
`;
  }
  if (native === "halves" || native === "converted") {
    return `${pairSums[native]}
fn sum_${dtype}(a: u32, b: u32) -> u32 { return pairSum(a, b) & 0xffffu; }
`;
  }
  const before = dtype === "float16" ? half : "";
  const sum = /* wgsl */ `let x = widen_${dtype}(a);
  let y = widen_${dtype}(b);
  let sum = bitcast<u32>(bitcast<f32>(x) + bitcast<f32>(y));`;
  if (native === "all") {
    const value =
      dtype === "float32"
        ? result
        : `select(${result}, 0x7fffu, (sum & 0x7fffffffu) > 0x7f800000u)`;
    return /* wgsl */ `${before}
fn sum_${dtype}(a: u32, b: u32) -> u32 {
  ${sum}
  return ${value};
}
`;
  }
  return /* wgsl */ `${addition(dtype)}${before}
fn isNormal(x: u32) -> bool { return (x & 0x7f800000u) - 0x00800000u < 0x7e800000u; }

fn sum_${dtype}(a: u32, b: u32) -> u32 {
  ${sum}
  let known = (isNormal(x) || (x & 0x7fffffffu) == 0u) && (isNormal(y) || (y & 0x7fffffffu) == 0u);
  if (known && isNormal(sum)) { return ${result}; }
  return add_${dtype}(a, b);
}
`;
}

/** `add_NAME(a, b)`: the sum of two elements, rounded once, for floats of up to 4 bytes. Needs `rounding` and `words64`. */
function addition(dtype: WordFloat): string {
  const { overflow, nan, width } = wordFormats[dtype];
  return /* wgsl */ `
fn add_${dtype}(a: u32, b: u32) -> u32 {
  let x = widen_${dtype}(a);
  let y = widen_${dtype}(b);
  let swap = (y & 0x7fffffffu) > (x & 0x7fffffffu);
  let large = select(x, y, swap);
  let small = select(y, x, swap);
  let sign = large & 0x80000000u;
  let same = sign == (small & 0x80000000u);
  if ((large & 0x7fffffffu) >= 0x7f800000u) {
    if ((large & 0x7fffffffu) > 0x7f800000u || (!same && (small & 0x7fffffffu) == 0x7f800000u)) { return ${hex(nan)}; }
    return ${hex(overflow)} | (sign >> ${32 - width}u);
  }
  let exponent = exponent32(large);
  let high = significand32(large) >> 2u;
  let low = jam32(significand32(small) >> 2u, u32(exponent - exponent32(small)));
  let sum = select(high - low, high + low, same);
  if (sum == 0u) { return select(0u, sign >> ${32 - width}u, same); }
  let zeros = countLeadingZeros(sum);
  return round_${dtype}(sign, exponent + 2 - i32(zeros), sum << zeros);
}
`;
}

/** The forms that add pairs. */
type PairForm = Extract<NativeAdd, "halves" | "converted" | "all">;

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

/**
 * The running value is two float32, rounded to halves at every hop. Adding and subtracting the least normal value detects
 * subnormals.
 */
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

/** The functions of a kernel, the type of its running value, and its directives. */
export function halfSum(form: PairForm): {
  readonly text: string;
  readonly running: string;
  readonly directives: string;
} {
  if (form === "all") return { text: spread, running: "vec2<u32>", directives: "" };
  return { text: pairSums[form] + packed, running: "u32", directives: directivesOf(form) };
}
