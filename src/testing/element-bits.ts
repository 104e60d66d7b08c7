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

/**
 * The words of `randomWords` as signed integers, and an element's bits in the making. Both stay small integers, which are no
 * objects in memory: contents have millions of elements.
 */
export class ElementBits {
  /** The lower 32 bits. */
  low = 0;
  /** The rest. */
  high = 0;
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** The next random word. */
  next(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    return mix32(this.#state) | 0;
  }

  /** The next random word below `count`. */
  below(count: number): number {
    return (this.next() >>> 0) % count;
  }

  set(low: number, high: number): void {
    this.low = low;
    this.high = high;
  }

  /** Writes the element of `width` bytes, least byte first. */
  write(view: DataView, width: number, at: number): void {
    if (width === 1) view.setUint8(at, this.low);
    else if (width === 2) view.setUint16(2 * at, this.low, true);
    else {
      view.setInt32(width * at, this.low, true);
      if (width === 8) view.setInt32(width * at + 4, this.high, true);
    }
  }
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
  /** Zero, the subnormal and normal numbers beside it, and the end of the finite numbers: two words each, the lower one first. */
  readonly edges: Int32Array;
}

const formats: Partial<Readonly<Record<DType, FloatFormat>>> = {
  float16: format(16, 10, 15, 0x7c00n),
  bfloat16: format(16, 7, 127, 0x7f80n),
  float32: format(32, 23, 127, 0x7f80_0000n),
  float64: format(64, 52, 1023, 0x7ff0_0000_0000_0000n),
  float8e4m3: format(8, 3, 7, 0x7en),
  float8e5m2: format(8, 2, 15, 0x7cn),
};

function format(width: number, fractionBits: number, bias: number, largest: bigint): FloatFormat {
  const minNormal = 1n << BigInt(fractionBits);
  const edges = [0n, 1n, minNormal - 1n, minNormal, largest, largest - 1n, largest + 1n];
  const words = edges.flatMap((edge) => [Number(BigInt.asIntN(32, edge)), Number(edge >> 32n)]);
  return { width, fractionBits, bias, largest, edges: Int32Array.from(words) };
}

/** The format of a float; `undefined` for integers. */
export function floatFormat(dtype: DType): FloatFormat | undefined {
  return formats[dtype];
}

/** Sets the bits of `units · 2^exponent`. It needs no rounding: there are few units, and the result is a normal number. */
export function setSmallFloat(
  bits: ElementBits,
  { width, bias, fractionBits }: FloatFormat,
  units: number,
  exponent: number,
): void {
  bits.set(0, 0);
  if (units === 0) return;
  const size = Math.abs(units);
  const top = 31 - Math.clz32(size);
  const field = bias + top + exponent;
  const sign = units < 0 ? 1 : 0;
  const rest = size - (1 << top);
  if (width < 64) {
    const fraction = rest << Math.max(0, fractionBits - top);
    bits.low = (sign << (width - 1)) | (field << fractionBits) | fraction;
  } else {
    const upper = top > 20 ? rest >>> (top - 20) : rest << (20 - top);
    bits.high = (sign << 31) | (field << 20) | upper;
    if (top > 20) bits.low = rest << (52 - top);
  }
}

/** The value `kind` of an element, for the comparison of results. */
export function floatKind(format: FloatFormat, bits: bigint): "nan" | "zero" | "number" {
  const size = BigInt.asUintN(format.width - 1, bits);
  if (size > format.largest) return "nan";
  return size === 0n ? "zero" : "number";
}
