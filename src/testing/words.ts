/** Random words and raw elements: the two sources that all contents are made of. */
import { mix32 } from "../api/bits.ts";
import { bytesOf, type DType } from "../api/index.ts";

/** A source of 32 random bits a call, fixed by its seed. */
export function randomWords(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    return mix32(state);
  };
}

/** An element's bits: the lower 32 and the rest. */
export type Bits = readonly [low: number, high: number];

/** Writes one element, least byte first. */
export function writeBits(view: DataView, dtype: DType, at: number, [low, high]: Bits): void {
  const width = bytesOf(dtype);
  if (width === 1) view.setUint8(at, low);
  else if (width === 2) view.setUint16(2 * at, low, true);
  else {
    view.setUint32(width * at, low, true);
    if (width === 8) view.setUint32(width * at + 4, high, true);
  }
}

/** A view of all of some bytes. */
export function dataView(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
