/** Hard cases for additions: what probes fold. Drawn by a fixed rule, so that every run tries the same ones. */
import type { DType } from "../../../../api/index.ts";

/** Words of a contribution. */
const count = 16_384;

/** Bits of a significand that are stored, by dtype. */
const fractionBits: Partial<Record<DType, number>> = { float32: 23, float16: 10, bfloat16: 7 };

/** Contribution number `k` of a probe. */
export function probeWords(dtype: DType, k: number): Uint32Array<ArrayBuffer> {
  const words = new Uint32Array(count);
  let state = 0x9e37_79b9 ^ Math.imul(k + 1, 0x85eb_ca6b);
  for (let i = 0; i < count; i++) {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b_3c6d) + 0x6d2b_79f5;
    words[i] = dtype === "float32" ? hardFloat(state, i, 8, 23) : hardPair(dtype, state, i);
  }
  return words;
}

function hardPair(dtype: DType, bits: number, i: number): number {
  const fraction = fractionBits[dtype] ?? 10;
  const low = hardFloat(bits, i, 15 - fraction, fraction);
  const high = hardFloat(Math.imul(bits, 0x297a_2d39), i + 1, 15 - fraction, fraction);
  return (low & 0xffff) | (high << 16);
}

/**
 * Bits of one float of that many exponent and fraction bits. A quarter each: any bits; subnormals and zeros; values next
 * to a power of two near 1, with sums that cancel and tie; infinities, NaN, the largest and the least normal values.
 */
function hardFloat(bits: number, i: number, exponentBits: number, fraction: number): number {
  const sign = (bits >>> 31) << (exponentBits + fraction);
  const ones = 2 ** fraction - 1;
  const mixed = Math.imul(bits, 0x1b87_3593) >>> 3;
  const kind = (i >>> 2) % 8;
  if (kind < 2) return (bits >>> (31 - exponentBits - fraction)) | sign;
  if (kind < 4) return sign | (mixed & ones & (kind === 2 ? ones : 1));
  if (kind < 7) {
    const middle = 2 ** (exponentBits - 1) - 1;
    const exponent = middle + (mixed % (kind === 4 ? 3 : fraction + 3));
    const near = [0, 1, ones, ones - 1, mixed & ones][mixed % 5] as number;
    return sign | (exponent * 2 ** fraction + near);
  }
  const largest = 2 ** exponentBits - 1;
  const ends = [largest, largest - 1, largest - 2, 1, 2] as const;
  const exponent = ends[mixed % ends.length] as number;
  return sign | (exponent * 2 ** fraction + (mixed % 3 === 0 ? 0 : (mixed >>> 5) & ones));
}

/**
 * Two contributions: every half, with what brings its sum to the ties on both sides of it, to the nearest sums that are
 * none, and to the ends of the range.
 */
export function tiedHalves(): [Uint32Array<ArrayBuffer>, Uint32Array<ArrayBuffer>] {
  const partners = 12;
  const first = new Uint16Array(partners * 2 ** 16);
  const second = new Uint16Array(first.length);
  for (let half = 0; half < 2 ** 16; half++) {
    // Half a step of the value, which is itself a half from exponent 2 on.
    const exponent = (half >> 10) & 0x1f;
    const step = exponent < 2 ? 1 : exponent < 12 ? 1 << (exponent - 2) : (exponent - 11) << 10;
    const sizes = [0, step - 1, step, step + 1, 0x7bff, 0x7c00];
    sizes.forEach((size, i) => {
      const at = partners * half + 2 * i;
      first.fill(half, at, at + 2);
      second[at] = size;
      second[at + 1] = size | 0x8000;
    });
  }
  return [new Uint32Array(first.buffer), new Uint32Array(second.buffer)];
}
