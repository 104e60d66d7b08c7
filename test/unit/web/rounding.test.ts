/** The rounding of a hop, beside figures worked out by hand. */
import type { DType, ReduceOp } from "twinccl";
import { expect, test } from "vitest";
import { type Cell, hexText, valueText } from "../../../web/inspect/cell.ts";
import { dyadic, inUnits, minus, plus, times } from "../../../web/inspect/dyadic.ts";
import { floatFormats, unitOf } from "../../../web/inspect/float-format.ts";
import type { Hop } from "../../../web/inspect/hops.ts";
import { roundingText } from "../../../web/inspect/rounding.ts";

function fold(
  dtype: DType,
  left: number | bigint,
  right: number | bigint,
  result: number | bigint,
): Hop {
  const operand = (value: number | bigint) => {
    const cell: Cell = { dtype, bits: 0n, value };
    return { order: [0], cell };
  };
  const base = { kind: "fold", isContribution: true, birth: undefined } as const;
  return { ...base, left: operand(left), right: operand(right), result: operand(result) };
}

test.each<[string, DType, ReduceOp, number | bigint, number | bigint, number | bigint]>([
  ["exact", "float32", "sum", 1, 2, 3],
  // 2^24 + 1 lies in the middle; to even.
  ["down 0.500 ulp", "float32", "sum", 2 ** 24, 1, 2 ** 24],
  ["up 0.500 ulp", "float32", "sum", 2 ** 24 + 2, 1, 2 ** 24 + 4],
  // One float16 ulp at 1 is 2^-10; a quarter of it is lost.
  ["down 0.250 ulp", "float16", "sum", 1, 2 ** -12, 1],
  ["up 0.250 ulp", "bfloat16", "sum", 1, 0.75 * 2 ** -7, 1 + 2 ** -7],
  ["overflows", "float16", "sum", 65504, 65504, Number.POSITIVE_INFINITY],
  ["exact", "float16", "sum", Number.POSITIVE_INFINITY, 1, Number.POSITIVE_INFINITY],
  // 1-byte floats have the largest number where others have infinity.
  ["saturates", "float8e4m3", "sum", 448, 448, 448],
  ["saturates", "float8e5m2", "sum", -768, Number.POSITIVE_INFINITY, 57344],
  ["saturates", "float8e5m2", "max", -768, Number.POSITIVE_INFINITY, 57344],
  ["exact", "float8e5m2", "min", -768, Number.POSITIVE_INFINITY, -768],
  // The product 1.5625 is rounded to 1.5 before the sum, which cancels most of it.
  ["down 2.000 ulp", "float8e4m3", { preMul: 0.3125 }, -1.75, 5, -0.25],
  ["down 1.563 ulp", "float16", { preMul: 1 + 2 ** -10 }, -1, 1 + 25 * 2 ** -10, 26 * 2 ** -10],
  // Everything but the rounding of the product cancels.
  ["down 9.97e+36 ulp", "bfloat16", { preMul: 1 + 2 ** -7 }, -1 - 2 ** -3, 1 + 15 * 2 ** -7, 0],
  ["NaN", "float32", "sum", Number.NaN, 1, Number.NaN],
  ["exact", "float32", "max", 1, 2, 2],
  ["exact", "float32", "prod", 3, 5, 15],
  ["under", "float64", "sum", 1, 2 ** -80, 1],
  // Less of a unit than a number can hold.
  ["down under 0.001 ulp", "float64", { preMul: 2 ** -1000 }, 1, 2 ** -900, 1],
  // 1 + 0.5 · 3 with a scalar that is exact.
  ["exact", "float32", { preMul: 0.5 }, 1, 3, 2.5],
  ["exact", "int8", "sum", 100n, 27n, 127n],
  ["wraps modulo 2^8", "int8", "sum", 100n, 28n, -128n],
  ["exact", "uint8", "prod", 15n, 17n, 255n],
])("%s: %s %s of %s and %s is %s", (said, dtype, op, left, right, result) => {
  expect(roundingText(fold(dtype, left, right, result), op, 2)).toContain(said);
});

test("exact numbers", () => {
  for (const x of [0, -0.1, 5e-324, 1.7976931348623157e308, 2 ** -1022]) {
    expect(inUnits(dyadic(x), 0)).toBe(x + 0);
  }
  const tenth = dyadic(0.1);
  // 0.1 + 0.2 − 0.3 is not nothing: 2^-54 of the three doubles.
  expect(inUnits(minus(plus(tenth, dyadic(0.2)), dyadic(0.3)), -54)).toBe(0.5);
  expect(inUnits(times(tenth, dyadic(4)), 0)).toBe(0.4);
});

test("units in the last place", () => {
  const of = (dtype: DType, x: number) => unitOf(x, floatFormats[dtype]!);
  expect(of("float32", 1)).toBe(-23);
  expect(of("float32", 2 - 2 ** -23)).toBe(-23);
  expect(of("float32", 2 ** -149)).toBe(-149);
  expect(of("float16", 65504)).toBe(5);
  expect(of("float8e4m3", 448)).toBe(5);
  expect(of("float8e5m2", 2 ** -16)).toBe(-16);
  expect(of("bfloat16", 0)).toBe(-133);
});

test("values and bits as people read them", () => {
  const cell = (dtype: DType, bits: bigint, value: number | bigint): Cell => ({
    dtype,
    bits,
    value,
  });
  expect(valueText(cell("float32", 0x3dcccccdn, Math.fround(0.1)))).toBe("0.1");
  expect(valueText(cell("bfloat16", 0x3dcdn, 0.10009765625))).toBe("0.1");
  expect(valueText(cell("float16", 0x3555n, 0.333251953125))).toBe("0.3333");
  expect(valueText(cell("float64", 0n, -0))).toBe("−0");
  expect(valueText(cell("int64", 0n, -5n))).toBe("−5");
  expect(hexText(cell("float16", 0x1n, 0))).toBe("0x0001");
});
