// The array that holds the elements of a type: narrow floats are their bits.
export const arrays = {
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
};

export const bytes = ({ buffer, byteOffset, byteLength }) =>
  new Uint8Array(buffer, byteOffset, byteLength);
