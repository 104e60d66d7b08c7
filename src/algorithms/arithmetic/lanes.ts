/**
 * Lanes: the memory of a buffer as the typed array its kernels work on, one class for each dtype.
 *
 * Kernels are fast as long as each of them only ever sees one class of array; that is why the class
 * follows from the dtype and not from what the caller holds. 64-bit integers are read as pairs of
 * 32-bit words, so their memory needs an alignment of 4 bytes only.
 */
import { bytesOf, type DType } from "../../api/dtype.ts";
import type { Lanes } from "./fold.ts";

type LaneView = (memory: ArrayBufferLike, byteOffset: number, length: number) => Lanes;

const bytes: LaneView = (memory, at, length) => new Uint8Array(memory, at, length);
const halves: LaneView = (memory, at, length) => new Uint16Array(memory, at, length);
const words: LaneView = (memory, at, length) => new Int32Array(memory, at, length);

const views = {
  int8: bytes,
  uint8: bytes,
  int32: words,
  uint32: words,
  int64: words,
  uint64: words,
  float16: halves,
  bfloat16: halves,
  float32: (memory, at, length) => new Float32Array(memory, at, length),
  float64: (memory, at, length) => new Float64Array(memory, at, length),
  float8e4m3: bytes,
  float8e5m2: bytes,
} satisfies { readonly [D in DType]: LaneView };

/** How many lanes one element takes: two 32-bit words, low word first, for 64-bit integers. */
export function lanesPerElement(dtype: DType): 1 | 2 {
  return dtype === "int64" || dtype === "uint64" ? 2 : 1;
}

/** The lanes of `byteLength` bytes of `memory` that hold elements of `dtype`. */
export function lanesOf(
  dtype: DType,
  memory: ArrayBufferLike,
  byteOffset: number,
  byteLength: number,
): Lanes {
  const laneBytes = bytesOf(dtype) / lanesPerElement(dtype);
  return views[dtype](memory, byteOffset, byteLength / laneBytes);
}
