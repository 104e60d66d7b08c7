/** TypedArrays of every dtype over given bytes, written down a second time. */
import type { OracleDType } from "../../src/testing/oracle/rounding.ts";

type HostView = ArrayBufferView & { readonly length: number };

const views = {
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  float8e4m3: Uint8Array,
  float8e5m2: Uint8Array,
} as const;

/** The TypedArray of a dtype over bytes. */
export function hostView(
  dtype: OracleDType,
  memory: ArrayBufferLike,
  byteOffset: number,
  length: number,
): HostView {
  return new views[dtype](memory as ArrayBuffer, byteOffset, length);
}
