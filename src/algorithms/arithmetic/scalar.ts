/**
 * Scalars of averages and pre-multiplied sums, rounded to the element type before the
 * multiplication.
 *
 * An average of floats multiplies by 1/n. NCCL computes that in float32 and converts it to narrower
 * types from there; float64 has its own 1/n.
 */
import { type DType, dtypeInfo, dtypes, isDType } from "../../api/dtype.ts";
import { assertArgument, assertInteger } from "../arguments.ts";
import type { FloatDType } from "./fold.ts";
import { bitsToNumber, numberToBits } from "./small-float.ts";

/** `x` rounded to `dtype`, as a number. */
export function roundScalar(dtype: FloatDType, x: number): number {
  assertArgument(typeof x === "number", "roundScalar", "x", x, "a number");
  if (dtype === "float64") return x;
  if (dtype === "float32") return Math.fround(x);
  return bitsToNumber(dtype, numberToBits(dtype, x));
}

/** The factor of each contribution to an average of `ranks` contributions. */
export function averageScalar(dtype: FloatDType, ranks: number): number {
  assertInteger("averageScalar", "ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
  return dtype === "float64" ? 1 / ranks : roundScalar(dtype, Math.fround(1 / ranks));
}

/** The bits of a scalar in the element type, for a library that takes a pointer to one. */
export function scalarBits(dtype: DType, scalar: number | bigint): bigint {
  assertArgument(isDType(dtype), "scalarBits", "dtype", dtype, `one of ${dtypes.join(", ")}`);
  const isInteger = typeof scalar === "bigint" || Number.isInteger(scalar);
  const isNumber = isInteger || (typeof scalar === "number" && dtypeInfo[dtype].kind === "float");
  assertArgument(isNumber, "scalarBits", "scalar", scalar, `a number that ${dtype} has`);
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
