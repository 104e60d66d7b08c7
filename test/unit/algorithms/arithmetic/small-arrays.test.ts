/** Arrays of small floats are converted as single ones are, bit by bit: for every pattern, and around every tie. */
import { bitsToNumber, bitsToNumbers, numbersToBits, numberToBits } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const widths = { float16: 2, bfloat16: 2, float8e4m3: 1, float8e5m2: 1 } as const;
const dtypes = Object.keys(widths) as (keyof typeof widths)[];

function everyPattern(dtype: keyof typeof widths): Uint16Array | Uint8Array {
  return widths[dtype] === 2
    ? Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits)
    : Uint8Array.from({ length: 2 ** 8 }, (_, bits) => bits);
}

/** Of two arrays of numbers the places where they differ; zeros have signs. */
function differing(found: ArrayLike<number>, expected: ArrayLike<number>): number[] {
  expect(found.length).toBe(expected.length);
  return Array.from(expected as number[]).flatMap((each, at) =>
    Object.is(found[at], each) ? [] : [at],
  );
}

describe.each(dtypes)("%s", (dtype) => {
  const every = everyPattern(dtype);
  const values = Array.from(every, (bits) => bitsToNumber(dtype, bits));

  test("every pattern decodes to its number", () => {
    const numbers = bitsToNumbers(dtype, every as Uint16Array & Uint8Array);
    expect(numbers).toBeInstanceOf(Float32Array);
    expect(differing(numbers, values)).toEqual([]);
  });

  test("every number encodes to its pattern, NaN to the canonical one", () => {
    const bits = numbersToBits(dtype, values);
    expect(bits).toBeInstanceOf(every.constructor);
    const canonical = 2 ** (8 * widths[dtype] - 1) - 1;
    const expected = Array.from(every, (each, at) => {
      if (Number.isNaN(values[at])) return canonical;
      // Infinities of 8 bits become the largest value, which is the pattern before theirs.
      return widths[dtype] === 1 && !Number.isFinite(values[at]) ? each - 1 : each;
    });
    expect(differing(bits, expected)).toEqual([]);
  });

  test("ties, and doubles beside them, round as single values do", () => {
    const finite = values.filter(Number.isFinite);
    const sorted = Float64Array.from(finite).sort();
    const around = [...sorted].flatMap((value, at) => {
      const tie = (value + (sorted[at + 1] ?? 2 * value)) / 2;
      return [tie, tie * (1 + 2 ** -52), tie * (1 - 2 ** -52)];
    });
    const wild = [0, -0, Infinity, -Infinity, Number.NaN, 1e300, -1e300, 5e-324, 1 / 3];
    const doubles = Float64Array.from([...around, ...wild]);
    const expected = Array.from(doubles, (each) => numberToBits(dtype, each));
    expect(differing(numbersToBits(dtype, doubles), expected)).toEqual([]);
    const singles = Float32Array.from(doubles);
    const rounded = Array.from(singles, (each) => numberToBits(dtype, each));
    expect(differing(numbersToBits(dtype, singles), rounded)).toEqual([]);
  });

  test("empty arrays stay empty, and views have only their own elements", () => {
    expect(numbersToBits(dtype, []).length).toBe(0);
    const view = Float32Array.of(9, 1, 2, 9).subarray(1, 3);
    const bits = numbersToBits(dtype, view);
    expect(Array.from(bitsToNumbers(dtype, bits.subarray(1) as typeof bits))).toEqual([2]);
  });
});

test.each([
  ["dtype", () => numberToBits("float32" as "float16", 1)],
  ["dtype", () => numberToBits("constructor" as "float16", 1)],
  ["dtype", () => bitsToNumber("bf16" as "bfloat16", 1)],
  ["bits", () => bitsToNumber("float16", 2 ** 16)],
  ["bits", () => bitsToNumber("float8e4m3", -1)],
  ["bits", () => bitsToNumber("float16", 1.5)],
  ["dtype", () => numbersToBits("float32" as "float16", [1])],
  ["dtype", () => bitsToNumbers("bf16" as "bfloat16", Uint16Array.of(1))],
  ["numbers", () => numbersToBits("float16", 1 as never)],
  ["numbers", () => numbersToBits("float16", BigInt64Array.of(1n) as never)],
  ["bits", () => bitsToNumbers("bfloat16", Float32Array.of(1) as never)],
  ["bits", () => bitsToNumbers("float8e4m3", Uint16Array.of(1) as never)],
  ["bits", () => bitsToNumbers("float16", [1] as never)],
])("a wrong %s is refused by its name", (field, call) => {
  expect(call).toThrow(expect.objectContaining({ code: "ERR_COMM_ARG", field }));
});
