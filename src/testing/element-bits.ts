/** Bits of elements: random words, the six float formats as fields of bits, and writing. */
import { mix32 } from "../api/bits.ts";
import type { DType } from "../api/index.ts";

/** A source of 32 random bits a call, fixed by its seed. */
export function randomWords(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    return mix32(state);
  };
}

/** An element's bits: the lower 32 and the rest. */
export type Bits = readonly [low: number, high: number];

/** Writes one element of `width` bytes, least byte first. */
export function writeBits(view: DataView, width: number, at: number, bits: Bits): void {
  const low = bits[0];
  if (width === 1) view.setUint8(at, low);
  else if (width === 2) view.setUint16(2 * at, low, true);
  else {
    view.setUint32(width * at, low, true);
    if (width === 8) view.setUint32(width * at + 4, bits[1], true);
  }
}

/** A view of all of some bytes. */
export function dataView(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A binary format. */
export interface FloatFormat {
  readonly width: number;
  /** Bits of the fraction; the hidden one is not counted. */
  readonly fractionBits: number;
  /** Exponent field of the number 1. */
  readonly bias: number;
  /** Bits of infinity without a sign, or, where there is none, of the largest number. */
  readonly largest: bigint;
}

const formats: Partial<Readonly<Record<DType, FloatFormat>>> = {
  float16: { width: 16, fractionBits: 10, bias: 15, largest: 0x7c00n },
  bfloat16: { width: 16, fractionBits: 7, bias: 127, largest: 0x7f80n },
  float32: { width: 32, fractionBits: 23, bias: 127, largest: 0x7f80_0000n },
  float64: { width: 64, fractionBits: 52, bias: 1023, largest: 0x7ff0_0000_0000_0000n },
  float8e4m3: { width: 8, fractionBits: 3, bias: 7, largest: 0x7en },
  float8e5m2: { width: 8, fractionBits: 2, bias: 15, largest: 0x7cn },
};

/** The format of a float; `undefined` for integers. */
export function floatFormat(dtype: DType): FloatFormat | undefined {
  return formats[dtype];
}

/** Bits of `units · 2^exponent`, for a few units that need no rounding and a result that is a normal number. */
export function smallFloat(format: FloatFormat, units: number, exponent: number): Bits {
  if (units === 0) return [0, 0];
  const { width, bias, fractionBits } = format;
  const size = Math.abs(units);
  const top = 31 - Math.clz32(size);
  const field = bias + top + exponent;
  const sign = units < 0 ? 1 : 0;
  const rest = size - (1 << top);
  if (width < 64) {
    const fraction = rest << Math.max(0, fractionBits - top);
    return [((sign << (width - 1)) | (field << fractionBits) | fraction) >>> 0, 0];
  }
  const high = (sign << 31) | (field << 20) | (top > 20 ? rest >>> (top - 20) : rest << (20 - top));
  return [top > 20 ? (rest << (52 - top)) >>> 0 : 0, high >>> 0];
}

/** The value `kind` of an element, for the comparison of results. */
export function floatKind(format: FloatFormat, bits: bigint): "nan" | "zero" | "number" {
  const size = BigInt.asUintN(format.width - 1, bits);
  if (size > format.largest) return "nan";
  return size === 0n ? "zero" : "number";
}

/** Bits in the two halves in which they are written. */
export function halves(bits: bigint): Bits {
  return [Number(BigInt.asUintN(32, bits)), Number(BigInt.asUintN(32, bits >> 32n))];
}
