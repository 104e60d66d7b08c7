/** Conversion of whole arrays of 2- and 1-byte floats to numbers and back: `numberToBits` and `bitsToNumber` for arrays. */
import { dtypeInfo, type HostArrays } from "../../api/dtype.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { bytesOfArray, typedArrayClass } from "../../api/typed-array.ts";
import {
  assertSmallFloat,
  bitsToNumber,
  numberToBits,
  type SmallFloat,
  smallFormats,
} from "./small-float.ts";

/**
 * The bits of numbers, each rounded to `dtype` like `numberToBits` and `fill`: to the nearest, ties to even. A NaN
 * becomes the canonical one. A value that is too large becomes infinite, in 8 bits the largest value. An element that is
 * not a number becomes a NaN. Costs some 10 ns a number.
 *
 * @returns A new array of the class that carries `dtype`, as long as `numbers`; for `copyFrom` and `asDType`.
 * @throws InvalidArgumentError for a dtype that is not a small float, and for numbers that are not an array, or bigints.
 * @example
 * buffer.copyFrom(numbersToBits("bfloat16", Float32Array.of(0.5, -2)));
 */
export function numbersToBits<D extends SmallFloat>(
  dtype: D,
  numbers: ArrayLike<number>,
): HostArrays[D] {
  assertSmallFloat("numbersToBits", dtype);
  const found = typedArrayClass(numbers);
  const fits = found === undefined ? Array.isArray(numbers) : !found.startsWith("Big");
  if (!fits) {
    throw invalid("numbersToBits", "numbers", textOf(numbers), "an array of numbers");
  }
  const { length } = ArrayBuffer.isView(numbers) ? bytesOfArray(numbers) : numbers;
  const bits = dtype.startsWith("float8") ? new Uint8Array(length) : new Uint16Array(length);
  for (let at = 0; at < length; at++) {
    const x: unknown = numbers[at];
    if (typeof x !== "number") {
      throw invalid("numbersToBits", `numbers[${at}]`, textOf(x), "a number");
    }
    bits[at] = numberToBits(dtype, x);
  }
  return bits as HostArrays[D];
}

/**
 * The exact values of bit patterns, as from `bitsToNumber`; every NaN becomes NaN.
 * Costs a nanosecond or two a number, and 256 KiB for each 2-byte dtype after its first use.
 *
 * @returns A new array as long as `bits`.
 * @throws InvalidArgumentError for a dtype that is not a small float, and for an array of a class that does not carry it.
 * @example
 * const mean = bitsToNumbers("bfloat16", await buffer.toHost());
 */
export function bitsToNumbers<D extends SmallFloat>(dtype: D, bits: HostArrays[D]): Float32Array {
  assertSmallFloat("bitsToNumbers", dtype);
  const { host } = dtypeInfo[dtype];
  const found = typedArrayClass(bits);
  if (found !== host) {
    throw new InvalidArgumentError(
      {
        headline: `bitsToNumbers: bits: found ${found ?? textOf(bits)}, bits of ${dtype} need ${host}`,
      },
      { field: "bits" },
    );
  }
  const values = valuesOf(dtype);
  const numbers = new Float32Array(bytesOfArray(bits).length);
  for (let at = 0; at < numbers.length; at++) {
    numbers[at] = values[bits[at] as number] as number;
  }
  return numbers;
}

const known: { [D in SmallFloat]?: Float32Array } = {};

/** The value of every bit pattern; computed on first use. */
export function valuesOf(dtype: SmallFloat): Float32Array {
  const cached = known[dtype];
  if (cached !== undefined) return cached;
  const values = new Float32Array(1 << (8 * smallFormats[dtype].bytes));
  for (let bits = 0; bits < values.length; bits++) values[bits] = bitsToNumber(dtype, bits);
  known[dtype] = values;
  return values;
}
