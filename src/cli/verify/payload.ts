/**
 * The inputs of a comparison: numbers with folds that never round, or arbitrary bits.
 *
 * Exact numbers give the same bits in every order of folding, so they compare backends whatever their plans. Arbitrary
 * bits hold everything that rounds: values near one, zeros, infinities, NaNs, subnormals; they compare equal plans.
 */
import { type DType, dtypeInfo, type HostArray } from "../../api/index.ts";
import { bitsOfArray, encodeBits, hostArray } from "../../bench/encode.ts";
import { mixedBits } from "../../bench/values.ts";

/** The numbers that are sent. */
export type Payload = "exact" | "bits";

/** Exponent of one, and bits of the fraction, in the part of an element that holds its sign. */
const formats: Readonly<Partial<Record<DType, { bias: number; fraction: number }>>> = {
  float16: { bias: 15, fraction: 10 },
  bfloat16: { bias: 127, fraction: 7 },
  float32: { bias: 127, fraction: 23 },
  // The upper of two words.
  float64: { bias: 1023, fraction: 20 },
  float8e4m3: { bias: 7, fraction: 3 },
  float8e5m2: { bias: 15, fraction: 2 },
};

/** Arbitrary bits for a rank; of floats one third anything at all, most others near one. */
export function arbitraryBits(dtype: DType, length: number, seed: number, rank: number): HostArray {
  const array = hostArray(dtype, length);
  encodeBits(array, 0, length, { seed, rank, index: 0 });
  const format = formats[dtype];
  if (format === undefined) return array;
  const { bytes } = dtypeInfo[dtype];
  const words = (bytes === 8 ? new Uint32Array(array.buffer) : bitsOfArray(array)) as Uint32Array;
  const width = bytes === 8 ? 2 : 1;
  const signBit = 2 ** (8 * Math.min(bytes, 4) - 1);
  for (let i = 0; i < length; i++) {
    const choice = mixedBits(~seed, rank, i);
    if (choice % 32 < 11) continue;
    const top = i * width + width - 1;
    const fraction = (words[top] as number) % 2 ** format.fraction;
    const sign = (choice >>> 5) % 2 === 0 ? 0 : signBit;
    const exponent = format.bias - 2 + ((choice >>> 6) % 4);
    words[top] = sign + exponent * 2 ** format.fraction + fraction;
    if (choice % 32 < 30) continue;
    // A zero, or the largest exponent without a fraction: infinity where the dtype has one.
    words.fill(0, i * width, top);
    words[top] = choice % 32 === 30 ? sign : signBit - 2 ** format.fraction + sign;
  }
  return array;
}
