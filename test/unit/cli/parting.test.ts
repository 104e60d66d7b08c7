/** At which hop a result parts from its plan's fold. */
import { describe, expect, test } from "vitest";
import { orderEndingAt, partingText } from "../../../src/cli/verify/parting.ts";

/** 2²⁴ + 3 is no float32, so that orders of these give other sums. */
const values = [5, 16_777_216, 3, -16_777_214];
const f = Math.fround;
const text = (found: number, order = [1, 2, 3, 0]): string =>
  partingText({
    ...{ dtype: "float32", op: "sum", order },
    contributions: values.map((value) => Float32Array.of(value)),
    found: Float32Array.of(found),
  });

describe("the hop is that of", () => {
  test("another order of the ranks", () => {
    const [a, b, c, d] = values as [number, number, number, number];
    const other = f(f(f(b + d) + c) + a);
    expect(text(other)).toMatch(
      /^the plan folds r1, r2, r3, r0; found is the fold r1, r3, \w+, \w+, .*: parts at hop 1$/,
    );
  });
  test("an end that came too early", () => {
    expect(text(f(16_777_216 + 3))).toContain("found is what is there before hop 2, r3");
  });
  test("a product that was rounded before the sum", () => {
    const [a, b, c] = [0.1, 0.7, 0.3];
    const thirds = [a, b, c].map((value) => f(f(value) * f(1 / 3)));
    const separate = f(f((thirds[0] as number) + (thirds[1] as number)) + (thirds[2] as number));
    const found = partingText({
      ...{ dtype: "float32", op: "avg", order: [0, 1, 2] },
      contributions: [a, b, c].map((value) => Float32Array.of(value)),
      found: Float32Array.of(separate),
    });
    expect(found).toMatch(/the fold r\d, r\d, r\d, products (fused with|rounded before) the sum/);
  });
  test("an owner's own ring is that of rank 0, turned to end there", () => {
    expect(orderEndingAt([2, 1, 3, 0], 1)).toEqual([3, 0, 2, 1]);
    expect(orderEndingAt([2, 1, 3, 0], 0)).toEqual([2, 1, 3, 0]);
  });
  test("no order: nothing is guessed", () => {
    expect(text(12_345)).toContain("no order of the ranks that was tried");
  });
});
