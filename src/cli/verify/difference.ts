/** Where two results differ, and their bits as text. */
import type { HostArray } from "../../api/index.ts";
import { type BitArray, bitsOfArray } from "../../bench/encode.ts";

/** The first difference between two results. */
export interface Difference {
  readonly element: number;
  readonly length: number;
  /** Bits of the element on either side; `nothing` beyond its end. */
  readonly a: string;
  readonly b: string;
}

/** The first element with different bits; `undefined` when there is none. */
export function firstDifference(a: HostArray, b: HostArray): Difference | undefined {
  if (a.length === b.length && Buffer.compare(bytesOf(a), bytesOf(b)) === 0) return undefined;
  const [left, right] = [bitsOfArray(a), bitsOfArray(b)];
  const length = Math.max(left.length, right.length);
  let element = 0;
  while (element < length && left[element] === right[element]) element++;
  return { element, length, a: bitsText(left, element), b: bitsText(right, element) };
}

function bitsText(bits: BitArray, element: number): string {
  const value = bits[element];
  if (value === undefined) return "nothing";
  return `0x${value.toString(16).padStart(2 * bits.BYTES_PER_ELEMENT, "0")}`;
}

function bytesOf({ buffer, byteOffset, byteLength }: HostArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
