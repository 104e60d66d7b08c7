/** NCCL's numbers of dtypes and operators. */
import { type FloatDType, numberToBits } from "../../../algorithms/arithmetic/index.ts";
import { bytesOf, type DType, dtypeInfo, type ReduceOp } from "../../../api/index.ts";

/** `ncclDataType_t`. */
export const dataTypes: Readonly<Record<DType, number>> = {
  int8: 0,
  uint8: 1,
  int32: 2,
  uint32: 3,
  int64: 4,
  uint64: 5,
  float16: 6,
  float32: 7,
  float64: 8,
  bfloat16: 9,
  float8e4m3: 10,
  float8e5m2: 11,
};

/** `ncclRedOp_t` of the built-in operators; note that max comes before min. */
export const reduceOps: Readonly<Record<Extract<ReduceOp, string>, number>> = {
  sum: 0,
  prod: 1,
  max: 2,
  min: 3,
  avg: 4,
};

/** True for the dtypes of 8-bit floats. */
export function isFloat8(dtype: DType | undefined): boolean {
  return dtype === "float8e4m3" || dtype === "float8e5m2";
}

/** A scalar as the bytes of one element, rounded to the dtype. */
export function scalarBytes(dtype: DType, value: number | bigint): Uint8Array {
  const { view, kind, bits } = dtypeInfo[dtype];
  const bytes = bytesOf(dtype);
  const buffer = new ArrayBuffer(bytes);
  const array = view(buffer, 0, 1);
  if (array instanceof BigInt64Array || array instanceof BigUint64Array) array[0] = BigInt(value);
  else if (bits) {
    array[0] = numberToBits(dtype as Exclude<FloatDType, "float32" | "float64">, Number(value));
  } else if (kind === "float") array[0] = Number(value);
  else array[0] = Number(BigInt.asIntN(8 * bytes, BigInt(value)));
  return new Uint8Array(buffer);
}
