/**
 * The 2- and 1-byte floats as numbers: their formats, and rounding to them.
 *
 * Every value of these formats is exact in a double, so arithmetic uses doubles. `nearest` rounds
 * the result once to the format, to nearest and ties to even. 1-byte floats are
 * converted as on a GPU: first to float16, then to 8 bits, saturating (`nearestFloat8`).
 */
import type { InvalidArgumentError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";

/** Dtypes that travel as bit patterns. */
export type SmallFloat = "float16" | "bfloat16" | "float8e4m3" | "float8e5m2";

/** One binary format; every number is exact. */
export interface SmallFormat {
  readonly bytes: 1 | 2;
  /** Largest finite value. */
  readonly most: number;
  /** Least normal value. */
  readonly least: number;
  /** `1 + 2^(53 - p)` for a significand of p bits: Veltkamp's constant. */
  readonly split: number;
  /** `1.5 * 2^52` subnormal steps: adding and subtracting it rounds to a whole number of steps. */
  readonly anchor: number;
  /** Factor to a float32; its bits, shifted right by `shift`, are those of the value. */
  readonly scale: number;
  readonly shift: number;
  /** Bits of infinity, or of the magnitude after the largest one that is not NaN. */
  readonly infinity: number;
}

/** The four small formats. */
export const smallFormats: { readonly [D in SmallFloat]: SmallFormat } = {
  float16: {
    bytes: 2,
    most: 65504,
    least: 2 ** -14,
    split: 2 ** 42 + 1,
    anchor: 1.5 * 2 ** (52 - 24),
    scale: 2 ** -112,
    shift: 13,
    infinity: 0x7c00,
  },
  bfloat16: {
    bytes: 2,
    most: (2 - 2 ** -7) * 2 ** 127,
    least: 2 ** -126,
    split: 2 ** 45 + 1,
    anchor: 1.5 * 2 ** (52 - 133),
    scale: 1,
    shift: 16,
    infinity: 0x7f80,
  },
  float8e4m3: {
    bytes: 1,
    most: 448,
    least: 2 ** -6,
    split: 2 ** 49 + 1,
    anchor: 1.5 * 2 ** (52 - 9),
    scale: 2 ** -120,
    shift: 20,
    infinity: 0x7f,
  },
  float8e5m2: {
    bytes: 1,
    most: 57344,
    least: 2 ** -14,
    split: 2 ** 50 + 1,
    anchor: 1.5 * 2 ** (52 - 16),
    scale: 2 ** -112,
    shift: 21,
    infinity: 0x7c,
  },
};

const float = new Float32Array(1);
const word = new Int32Array(float.buffer);

/**
 * The value of `format` nearest to `x`, ties to even; beyond the largest, infinity (which a format
 * without one does not have: see `nearestFloat8`).
 *
 * Veltkamp's splitting rounds to p bits without reading an exponent. Its ties go to even: a value half way between two p-bit
 * numbers ends in zeros. So the tie of the inner addition has the same parity. The form `q - (q - x)` keeps the sign of a zero.
 */
export function nearest(format: SmallFormat, x: number): number {
  const size = Math.abs(x);
  if (size < format.least) {
    const steps = x + format.anchor - format.anchor;
    return steps === 0 ? x * 0 : steps;
  }
  // Far outside the range, and for infinity and NaN, the splitting would overflow.
  if (!(size <= 2 * format.most)) return x * Number.POSITIVE_INFINITY;
  const q = x * format.split;
  const rounded = q - (q - x);
  return Math.abs(rounded) <= format.most ? rounded : x * Number.POSITIVE_INFINITY;
}

/** `x` rounded to a 1-byte format through float16; never infinite. */
function nearestFloat8(format: SmallFormat, x: number): number {
  const half = nearest(smallFormats.float16, x);
  const rounded = nearest(format, half);
  return Math.max(-format.most, Math.min(format.most, rounded));
}

/**
 * The value of a bit pattern.
 *
 * @throws InvalidArgumentError for a dtype that is not a small float, and for bits that it does not have.
 */
export function bitsToNumber(dtype: SmallFloat, bits: number): number {
  const format = typeof dtype === "string" ? smallFormats[dtype] : undefined;
  if (!isFormat(format)) throw notSmall("bitsToNumber", dtype);
  const sign = 8 * format.bytes - 1;
  const most = (1 << (sign + 1)) - 1;
  if (!(Number.isInteger(bits) && bits >= 0 && bits <= most)) {
    throw invalid("bitsToNumber", "bits", textOf(bits), `an integer in 0..${most}`);
  }
  const magnitude = bits & ((1 << sign) - 1);
  if (magnitude >= format.infinity) {
    const infinite = magnitude === format.infinity && dtype !== "float8e4m3";
    if (!infinite) return Number.NaN;
    return bits >> sign === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  }
  word[0] = magnitude << format.shift;
  const size = (float[0] as number) / format.scale;
  return bits >> sign === 0 ? size : -size;
}

/**
 * The bits of `x` rounded to `dtype`; a NaN is the canonical one, an 8-bit overflow saturates.
 *
 * @throws InvalidArgumentError for a dtype that is not a small float.
 */
export function numberToBits(dtype: SmallFloat, x: number): number {
  const format = typeof dtype === "string" ? smallFormats[dtype] : undefined;
  if (!isFormat(format)) throw notSmall("numberToBits", dtype);
  if (typeof x !== "number") throw invalid("numberToBits", "x", textOf(x), "a number");
  const sign = 8 * format.bytes - 1;
  const magnitudes = (1 << sign) - 1;
  if (Number.isNaN(x)) return magnitudes;
  float[0] = (format.bytes === 1 ? nearestFloat8(format, x) : nearest(format, x)) * format.scale;
  const bits = word[0] as number;
  return ((bits >>> format.shift) & magnitudes) | ((bits >>> 31) << sign);
}

/** False for what an unknown name gives, which an object may inherit. In place of `Object.hasOwn`, which takes as long as a conversion. */
function isFormat(format: SmallFormat | undefined): format is SmallFormat {
  return format?.bytes !== undefined;
}

/** The error of a dtype that is not a small float. */
function notSmall(action: string, dtype: unknown): InvalidArgumentError {
  const names = Object.keys(smallFormats).join(", ");
  return invalid(action, "dtype", textOf(dtype), `one of ${names}`);
}

/** @throws InvalidArgumentError for a dtype that is not a small float; `action` begins it. */
export function assertSmallFloat(action: string, dtype: SmallFloat): void {
  if (typeof dtype !== "string" || !isFormat(smallFormats[dtype])) throw notSmall(action, dtype);
}
