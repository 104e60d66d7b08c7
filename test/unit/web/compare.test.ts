/** Results are compared by their bits, element by element. */
import type { HostArray } from "twinccl";
import { expect, test } from "vitest";
import { compare, type Outcome } from "../../../web/data/run.ts";

const outcome = (...outputs: HostArray[]): Outcome => ({ executor: "x", outputs, milliseconds: 0 });

test("the same bits are equal, NaN too", () => {
  const one = outcome(Float32Array.of(1, Number.NaN), new Float32Array());
  expect(
    compare(one, outcome(Float32Array.of(1, Number.NaN), new Float32Array()), "float32"),
  ).toEqual({
    equal: 2,
    of: 2,
    first: undefined,
  });
});

test("zeros of different signs differ, and one bit is enough", () => {
  const one = outcome(Float64Array.of(0, 1, 2), Float64Array.of(3));
  const other = outcome(Float64Array.of(-0, 1, 2 + 2 ** -51), Float64Array.of(3));
  const first = { rank: 0, element: 0 };
  expect(compare(one, other, "float64")).toEqual({ equal: 2, of: 4, first });
});

test("a missing value is not equal", () => {
  const { equal, of, first } = compare(outcome(Uint16Array.of(1, 2)), outcome(), "float16");
  expect([equal, of, first]).toEqual([0, 2, { rank: 0, element: 0 }]);
});
