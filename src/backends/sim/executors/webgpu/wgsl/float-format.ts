/**
 * The floats of up to 4 bytes as bits: widening to float32, which is exact, and the one rounding to nearest, ties to even. All
 * arithmetic uses integers, because devices may flush subnormals and need not support NaN or infinity.
 *
 * Sums and products are passed as sign, exponent and 32 bits of significand. The first bit stands for `2^exponent`; the last
 * one is jammed (see `words64`).
 */
import type { DType } from "../../../../../api/index.ts";

/** Floats that fit into a word. */
export type WordFloat = Extract<
  DType,
  "float32" | "float16" | "bfloat16" | "float8e4m3" | "float8e5m2"
>;

interface Format {
  readonly width: number;
  /** Bits of a significand, the hidden one included. */
  readonly precision: number;
  readonly bias: number;
  /** Magnitude of an overflow: infinity, or the largest value of a saturating format. */
  readonly overflow: number;
  /** The largest magnitude below NaN. */
  readonly last: number;
  readonly nan: number;
}

/** The formats by dtype. */
export const wordFormats: { readonly [D in WordFloat]: Format } = {
  float32: {
    width: 32,
    precision: 24,
    bias: 127,
    overflow: 0x7f80_0000,
    last: 0x7f80_0000,
    nan: 0x7fff_ffff,
  },
  float16: { width: 16, precision: 11, bias: 15, overflow: 0x7c00, last: 0x7c00, nan: 0x7fff },
  bfloat16: { width: 16, precision: 8, bias: 127, overflow: 0x7f80, last: 0x7f80, nan: 0x7fff },
  float8e4m3: { width: 8, precision: 4, bias: 7, overflow: 0x7e, last: 0x7e, nan: 0x7f },
  float8e5m2: { width: 8, precision: 3, bias: 15, overflow: 0x7b, last: 0x7c, nan: 0x7f },
};

/** A number as WGSL writes it. */
export function hex(value: number): string {
  return `0x${value.toString(16)}u`;
}

/** Decomposes float32 bits; an exponent of zero needs no special case. */
export const parts32 = /* wgsl */ `
fn exponent32(x: u32) -> i32 {
  let size = x & 0x7fffffffu;
  return select(i32(size >> 23u) - 127, -118 - i32(countLeadingZeros(size)), size < 0x00800000u);
}

fn significand32(x: u32) -> u32 {
  let size = x & 0x7fffffffu;
  return select((size << 8u) | 0x80000000u, size << (countLeadingZeros(size) & 31u), size < 0x00800000u);
}
`;

/** `pack_NAME(sign, exponent, significand)`: the nearest value's bits; `sign` is bit 31. */
export function packing(dtype: WordFloat): string {
  const { width, precision, bias, overflow } = wordFormats[dtype];
  return /* wgsl */ `
fn pack_${dtype}(sign: u32, exponent: i32, significand: u32) -> u32 {
  let below = max(${1 - bias} - exponent, 0);
  let drop = u32(min(${32 - precision} + below, 33));
  var kept = 0u;
  var rest = u32(significand != 0u && drop == 33u);
  if (drop < 32u) { kept = significand >> drop; rest = significand << (32u - drop); }
  if (drop == 32u) { rest = significand; }
  kept += u32(rest > 0x80000000u || (rest == 0x80000000u && (kept & 1u) == 1u));
  let above = select(0u, u32(exponent - ${1 - bias}) << ${precision - 1}u, below == 0 && significand != 0u);
  return min(above + kept, ${hex(overflow)}) | (sign >> ${32 - width}u);
}
`;
}

/** `widen_NAME(bits)`: the float32 of the same value, infinities and NaN included. */
export function widening(dtype: WordFloat): string {
  const { width, precision, bias, last } = wordFormats[dtype];
  const head = `fn widen_${dtype}(x: u32) -> u32 {`;
  if (dtype === "float32") return `\n${head} return x; }\n`;
  if (dtype === "bfloat16") return `\n${head} return x << 16u; }\n`;
  const shift = 24 - precision;
  const special = dtype === "float8e4m3" ? last + 1 : last;
  return /* wgsl */ `
${head}
  let sign = (x << ${32 - width}u) & 0x80000000u;
  let size = x & ${hex(2 ** (width - 1) - 1)};
  if (size >= ${hex(special)}) { return sign | (size << ${shift}u) | 0x7f800000u; }
  if (size >= ${hex(2 ** (precision - 1))}) { return sign | ((size << ${shift}u) + ${hex((127 - bias) * 2 ** 23)}); }
  if (size == 0u) { return sign; }
  let zeros = countLeadingZeros(size);
  return sign | (((${159 - bias - precision}u - zeros) << 23u) + (size << (zeros - 8u)));
}
`;
}
