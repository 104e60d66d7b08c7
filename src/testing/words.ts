/** Random words and raw elements: the two sources that all contents are made of. */
import { bytesOf, type DType } from "../api/index.ts";

/** A source of 32 random bits a call, fixed by its seed. */
export function randomWords(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 0;
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

/** Reads one element's bits. */
export function readBits(view: DataView, dtype: DType, at: number): bigint {
  const width = bytesOf(dtype);
  if (width === 1) return BigInt(view.getUint8(at));
  if (width === 2) return BigInt(view.getUint16(2 * at, true));
  if (width === 4) return BigInt(view.getUint32(4 * at, true));
  return view.getBigUint64(8 * at, true);
}

/** A view of all of some bytes. */
export function dataView(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
