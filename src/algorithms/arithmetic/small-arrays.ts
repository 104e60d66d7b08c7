/** Whole arrays of the 2- and 1-byte floats as numbers and back: what `numberToBits` and `bitsToNumber` do, many at once. */
import { dtypeInfo, type HostArrays } from "../../api/dtype.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import { typedArrayClass } from "../../api/host-array.ts";
import { textOf } from "../../api/option-kinds.ts";
import { bitsToNumber, numberToBits, type SmallFloat, smallFormats } from "./small-float.ts";

/**
 * The bits of numbers, each rounded to `dtype` as `numberToBits` and `fill` round: to the nearest, ties to even. A NaN is the
 * canonical one; what is too large is infinite, in 8 bits the largest value. What is no number is a NaN.
 * Costs some 10 ns a number.
 *
 * @returns A new array of the class that carries `dtype`, as long as `numbers`; for `copyFrom` and `asDType`.
 * @throws InvalidArgumentError for a dtype that is no small float, and for numbers that are no array, or bigints.
 * @example
 * buffer.copyFrom(numbersToBits("bfloat16", Float32Array.of(0.5, -2)));
 */
export function numbersToBits<D extends SmallFloat>(
  dtype: D,
  numbers: ArrayLike<number>,
): HostArrays[D] {
  assertSmall("numbersToBits", dtype);
  const found = typedArrayClass(numbers);
  const fits = found === undefined ? Array.isArray(numbers) : !found.startsWith("Big");
  if (!fits) {
    throw new InvalidArgumentError(
      { headline: `numbersToBits: numbers: found ${textOf(numbers)}, needs an array of numbers` },
      { field: "numbers" },
    );
  }
  const { length } = numbers;
  const bits = dtype.startsWith("float8") ? new Uint8Array(length) : new Uint16Array(length);
  for (let at = 0; at < length; at++) bits[at] = numberToBits(dtype, Number(numbers[at]));
  return bits as HostArrays[D];
}

/**
 * The numbers that bits stand for, exactly, as `bitsToNumber` tells them; every NaN is NaN.
 * Costs a nanosecond or two a number, and 256 KiB for each 2-byte dtype from its first use on.
 *
 * @returns A new array as long as `bits`.
 * @throws InvalidArgumentError for a dtype that is no small float, and for an array of another class than carries it.
 * @example
 * const mean = bitsToNumbers("bfloat16", await buffer.toHost());
 */
export function bitsToNumbers<D extends SmallFloat>(dtype: D, bits: HostArrays[D]): Float32Array {
  assertSmall("bitsToNumbers", dtype);
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
  const numbers = new Float32Array(bits.length);
  for (let at = 0; at < numbers.length; at++) {
    numbers[at] = values[bits[at] as number] as number;
  }
  return numbers;
}

const known: { [D in SmallFloat]?: Float32Array } = {};

/** The value of every bit pattern; made on first use. */
export function valuesOf(dtype: SmallFloat): Float32Array {
  const made = known[dtype];
  if (made !== undefined) return made;
  const values = new Float32Array(1 << (8 * smallFormats[dtype].bytes));
  for (let bits = 0; bits < values.length; bits++) values[bits] = bitsToNumber(dtype, bits);
  known[dtype] = values;
  return values;
}

function assertSmall(action: string, dtype: SmallFloat): void {
  if (Object.hasOwn(smallFormats, dtype)) return;
  const names = Object.keys(smallFormats).join(", ");
  throw new InvalidArgumentError(
    { headline: `${action}: dtype: found ${textOf(dtype)}, needs one of ${names}` },
    { field: "dtype" },
  );
}
