/** The inputs: numbers that a seed fixes, the same on every machine. */
import { type DType, dtypeInfo, type HostArray } from "twinccl";
import { numberToBits, type SmallFloat } from "twinccl/algorithms";
import type { ValueKind } from "../state.ts";

/**
 * `length` elements of a rank's input. `mixed`: floats of many magnitudes, small integers of both signs. `whole`: small
 * whole numbers, which every float holds. `wild`: any bits, with NaN, infinities and subnormals.
 */
export function inputOf(
  kind: ValueKind,
  seed: number,
  rank: number,
  dtype: DType,
  length: number,
): HostArray {
  const { bytes, kind: numbers, view } = dtypeInfo[dtype];
  const memory = new ArrayBuffer(length * bytes);
  const next = generator(seed, rank);
  if (kind === "wild") {
    const words = new Uint8Array(memory);
    for (let i = 0; i < words.length; i++) words[i] = next() >>> 24;
    return view(memory, 0, length);
  }
  const array = view(memory, 0, length);
  const draw = numbers === "float" && kind === "mixed" ? mixedFloat : wholeNumber(numbers);
  for (let i = 0; i < length; i++) array[i] = elementOf(dtype, draw(next));
  return array;
}

/** A number as an array of the dtype holds it. */
function elementOf(dtype: DType, x: number): number | bigint {
  if (dtypeInfo[dtype].bits) return numberToBits(dtype as SmallFloat, x);
  return dtype === "int64" || dtype === "uint64" ? BigInt(x) : x;
}

type Draw = (next: () => number) => number;

/** From 2⁻⁴ up to 2⁴, of both signs. */
const mixedFloat: Draw = (next) => {
  const fraction = 1 + next() / 2 ** 32;
  const exponent = (next() >>> 29) - 4;
  return (next() >>> 31 === 0 ? 1 : -1) * fraction * 2 ** exponent;
};

function wholeNumber(numbers: "signed" | "unsigned" | "float"): Draw {
  const least = numbers === "unsigned" ? 0 : -4;
  return (next) => least + ((next() >>> 28) % 9);
}

/** A stream of 32-bit words for a seed and a rank (splitmix32). */
function generator(seed: number, rank: number): () => number {
  let at = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(rank + 1, 0x85ebca6b)) >>> 0;
  return () => {
    at = (at + 0x9e3779b9) >>> 0;
    let word = at;
    word = Math.imul(word ^ (word >>> 16), 0x21f0aaad);
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97);
    return (word ^ (word >>> 15)) >>> 0;
  };
}
