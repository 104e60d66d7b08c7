/**
 * Scalars of averages and pre-multiplied sums, rounded to the element type before the
 * multiplication.
 *
 * An average of floats multiplies by 1/n. NCCL computes that in float32 and converts it to narrower
 * types from there; float64 has its own 1/n.
 */
import type { DType } from "../../api/dtype.ts";
import type { FloatDType } from "./fold.ts";
import { bitsToNumber, numberToBits } from "./small-float.ts";

/** `x` rounded to `dtype`, as a number. */
export function roundScalar(dtype: FloatDType, x: number): number {
  if (dtype === "float64") return x;
  if (dtype === "float32") return Math.fround(x);
  return bitsToNumber(dtype, numberToBits(dtype, x));
}

/** The factor of each contribution to an average of `ranks` contributions. */
export function averageScalar(dtype: FloatDType, ranks: number): number {
  return dtype === "float64" ? 1 / ranks : roundScalar(dtype, Math.fround(1 / ranks));
}

/** The bits of a scalar in the element type, for a library that takes a pointer to one. */
export function scalarBits(dtype: DType, scalar: number | bigint): bigint {
  switch (dtype) {
    case "int8":
    case "uint8":
      return BigInt.asUintN(8, BigInt(scalar));
    case "int32":
    case "uint32":
      return BigInt.asUintN(32, BigInt(scalar));
    case "int64":
    case "uint64":
      return BigInt.asUintN(64, BigInt(scalar));
    case "float32":
      return BigInt(new Uint32Array(new Float32Array([Number(scalar)]).buffer)[0] as number);
    case "float64":
      return new BigUint64Array(new Float64Array([Number(scalar)]).buffer)[0] as bigint;
    default:
      return BigInt(numberToBits(dtype, Number(scalar)));
  }
}

/** True when multiplying by `x` only moves the exponent. */
export function isPowerOfTwo(x: number): boolean {
  const size = Math.abs(x);
  return size > 0 && size < Number.POSITIVE_INFINITY && 2 ** Math.round(Math.log2(size)) === size;
}
