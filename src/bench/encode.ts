/** Writing the benchmark's numbers and bytes into host arrays of any dtype. */
import { bitsToNumber, numberToBits, type SmallFloat } from "../algorithms/arithmetic/index.ts";
import { bytesOf, type DType, dtypeInfo, type HostArray } from "../api/index.ts";
import { mixedBits } from "./values.ts";

/** Bits as unsigned integers of the element's width, in which results are compared. */
export type BitArray = Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/** A new host array of zeros. */
export function hostArray(dtype: DType, length: number): HostArray {
  return dtypeInfo[dtype].view(new ArrayBuffer(length * bytesOf(dtype)), 0, length);
}

/** The bits of a host array. */
export function bitsOfArray({
  buffer,
  byteOffset,
  length,
  BYTES_PER_ELEMENT,
}: HostArray): BitArray {
  if (BYTES_PER_ELEMENT === 1) return new Uint8Array(buffer, byteOffset, length);
  if (BYTES_PER_ELEMENT === 2) return new Uint16Array(buffer, byteOffset, length);
  if (BYTES_PER_ELEMENT === 4) return new Uint32Array(buffer, byteOffset, length);
  return new BigUint64Array(buffer, byteOffset, length);
}

/** Writes numbers that are exact in the dtype to elements `start` up to `end`. */
export function encodeNumbers(
  dtype: DType,
  target: HostArray,
  start: number,
  end: number,
  numberAt: (index: number) => number,
): void {
  if (target instanceof BigInt64Array || target instanceof BigUint64Array) {
    // Two 32-bit words each, which is much faster than a bigint each; typed arrays are little-endian here.
    const words = new Int32Array(target.buffer, target.byteOffset, 2 * target.length);
    for (let at = start; at < end; at++) {
      const value = numberAt(at - start);
      words[2 * at] = value;
      words[2 * at + 1] = value < 0 ? -1 : 0;
    }
  } else if (dtypeInfo[dtype].bits) {
    const small = dtype as SmallFloat;
    for (let at = start; at < end; at++) target[at] = numberToBits(small, numberAt(at - start));
  } else {
    for (let at = start; at < end; at++) target[at] = numberAt(at - start);
  }
}

/** Writes arbitrary bits, NaN payloads among them, to elements `start` up to `end`; copies must preserve them. */
export function encodeBits(
  target: HostArray,
  start: number,
  end: number,
  source: { readonly seed: number; readonly rank: number; readonly index: number },
): void {
  const { seed, rank, index } = source;
  const bits = bitsOfArray(target);
  if (bits instanceof BigUint64Array) {
    const words = new Uint32Array(bits.buffer, bits.byteOffset, 2 * bits.length);
    for (let at = start; at < end; at++) {
      const low = mixedBits(seed, rank, index + at - start);
      words[2 * at] = low;
      words[2 * at + 1] = ~low;
    }
  } else {
    for (let at = start; at < end; at++) bits[at] = mixedBits(seed, rank, index + at - start);
  }
}

/** The factor of an average of floats: 1/n in float32 (float64 for float64), then in the dtype. */
export function averageFactor(dtype: DType, ranks: number): number {
  if (dtypeInfo[dtype].kind !== "float" || dtype === "float64") return 1 / ranks;
  const single = Math.fround(1 / ranks);
  if (dtype === "float32") return single;
  const small = dtype as SmallFloat;
  return bitsToNumber(small, numberToBits(small, single));
}
