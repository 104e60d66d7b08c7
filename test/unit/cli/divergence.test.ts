/** At which hop a result parts from its plan's fold. */
import { describe, expect, test } from "vitest";
import { divergenceText, orderEndingAt } from "../../../src/cli/verify/divergence.ts";

const f = Math.fround;

/** Beside 2²⁴ a 1 is lost, and beside 1 the last of these. */
const values = [1e-8, 16_777_216, 1, -16_777_216];
const text = (found: number, each = values): string =>
  divergenceText({
    ...{ dtype: "float32", op: "sum", order: [1, 2, 3, 0] },
    contributions: each.map((value) => Float32Array.of(value)),
    found: Float32Array.of(found),
  });

describe("the hop is that of", () => {
  test("another order of the ranks", () => {
    expect(text(1)).toMatch(
      /^the plan folds r1, r2, r3, r0; found is the fold r1, r3, (r0, r2|r2, r0), .*: parts at hop 1$/,
    );
  });
  test("an end that came too early", () => {
    expect(text(5, [7, 2, 3, 30])).toContain("found is what is there before hop 2, r3");
  });
  test("a product that was rounded before the sum", () => {
    const [a, b, c] = [0.1, 0.7, 0.3];
    const thirds = [a, b, c].map((value) => f(f(value) * f(1 / 3)));
    const separate = f(f((thirds[0] as number) + (thirds[1] as number)) + (thirds[2] as number));
    const found = divergenceText({
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
  test("without an order no hop is guessed", () => {
    expect(text(12_345)).toContain("no order of the ranks that was tried");
  });
});
