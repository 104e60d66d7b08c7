/** Bits of elements: the comparison of results, and the mixer behind keyed random numbers. */

/** The first difference between two results. */
export interface BitDifference {
  readonly element: number;
  /** Elements of the longer result. */
  readonly length: number;
  /** Bits of the element on either side; `nothing` beyond its end. */
  readonly a: string;
  readonly b: string;
}

/**
 * The first element with different bits; `undefined` when there is none. `equal` is consulted for different bits, and
 * returns true for those that count as the same.
 */
export function firstDifference(
  a: ArrayBufferView,
  b: ArrayBufferView,
  elementBytes: number,
  equal?: (a: bigint, b: bigint) => boolean,
): BitDifference | undefined {
  const [left, right] = [bytesOfView(a), bytesOfView(b)];
  const bytes = Math.max(left.length, right.length);
  for (let at = 0; at < bytes; at++) {
    if (left[at] === right[at]) continue;
    const element = Math.floor(at / elementBytes);
    const mine = bitsText(left, element, elementBytes);
    const theirs = bitsText(right, element, elementBytes);
    if (mine !== undefined && theirs !== undefined && equal?.(BigInt(mine), BigInt(theirs))) {
      at = (element + 1) * elementBytes - 1;
      continue;
    }
    const length = bytes / elementBytes;
    return { element, length, a: mine ?? "nothing", b: theirs ?? "nothing" };
  }
  return undefined;
}

/** The bytes behind an array. */
export function bytesOfView({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** An element as the number that its bytes are, lowest first; `undefined` beyond the end. */
function bitsText(bytes: Uint8Array, element: number, elementBytes: number): string | undefined {
  const own = bytes.subarray(element * elementBytes, (element + 1) * elementBytes);
  if (own.length < elementBytes) return undefined;
  return `0x${Array.from(own, (byte) => byte.toString(16).padStart(2, "0"))
    .reverse()
    .join("")}`;
}

/** Spreads every bit of a 32-bit word over all of them; one to one. Recorded results depend on it. */
export function mix32(word: number): number {
  let x = word;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}
