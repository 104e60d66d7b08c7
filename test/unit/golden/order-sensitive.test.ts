/** Elements that show the order of folding are those with other bits from the last rank to the first. */
import { describe, expect, test } from "vitest";
import type { GoldenCase } from "../../../src/golden/case.ts";
import { inputOf } from "../../../src/golden/inputs.ts";
import { orderSensitiveElements } from "../../../src/golden/order-sensitive.ts";

const call: GoldenCase = {
  ...{ ranks: 4, forced: undefined, collective: "allReduce", dtype: "float32", op: "sum" },
  ...{ count: 300, values: "norm", root: undefined, environment: "plain" },
  ...{ inPlace: false, offset: 0 },
};

/** Counted element by element with the language's own arithmetic. */
function counted(golden: GoldenCase, add: (a: number, b: number) => number): number {
  const inputs = Array.from({ length: golden.ranks }, (_, rank) =>
    Array.from(inputOf(golden, rank) as Float32Array | Float64Array),
  );
  const folds = [inputs, inputs.toReversed()].map((ranks) =>
    (ranks[0] as number[]).map((_, at) => ranks.map((each) => each[at] as number).reduce(add)),
  );
  const [forward, backward] = folds as [number[], number[]];
  return forward.filter((value, at) => !Object.is(value, backward[at])).length;
}

describe("elements that show the order", () => {
  test.each([
    ["float32 sums", { ...call }, (a: number, b: number) => Math.fround(a + b)],
    ["sums of any bits", { ...call, values: "wild" }, (a, b) => Math.fround(a + b)],
    ["products", { ...call, op: "prod" }, (a, b) => Math.fround(a * b)],
    ["float64 sums", { ...call, dtype: "float64" }, (a, b) => a + b],
    [
      "all blocks of a reduce-scatter",
      { ...call, collective: "reduceScatter" },
      (a, b) => Math.fround(a + b),
    ],
  ] as [string, GoldenCase, (a: number, b: number) => number][])("%s", (_, golden, add) => {
    const expected = counted(golden, add);
    expect(expected).toBeGreaterThan(0);
    expect(orderSensitiveElements(golden)).toBe(expected);
  });

  test.each([
    ["sums of two ranks", { ...call, ranks: 2 }],
    ["integers", { ...call, dtype: "int32" }],
    ["minima", { ...call, op: "min" }],
  ] as [string, GoldenCase][])("none of %s", (_, golden) => {
    expect(orderSensitiveElements(golden)).toBe(0);
  });

  test("narrow floats too", () => {
    for (const dtype of ["bfloat16", "float16", "float8e4m3", "float8e5m2"] as const) {
      const found = orderSensitiveElements({ ...call, dtype, op: "avg" });
      expect(found).toBeGreaterThan(0);
      expect(found).toBeLessThan(call.count);
    }
  });
});
