/** Contributions that tell two folds apart exist for every two orders, of every float type. */
import type { DType, ReduceOp } from "twinccl";
import { describe, expect, test } from "vitest";
import { witnessOf } from "../../../../src/algorithms/invariance/witness.ts";

const orders = permutations([0, 1, 2, 3]);

function permutations(ranks: readonly number[]): number[][] {
  if (ranks.length < 2) return [[...ranks]];
  return ranks.flatMap((first) =>
    permutations(ranks.filter((rank) => rank !== first)).map((rest) => [first, ...rest]),
  );
}

const floats: readonly DType[] = [
  ...(["float16", "bfloat16", "float32", "float64", "float8e4m3", "float8e5m2"] as const),
];

/** Orders that differ in more than their first two ranks. */
const isVisible = (a: readonly number[], b: readonly number[]): boolean =>
  `${a.slice(2)}` !== `${b.slice(2)}`;

describe.each(floats)("%s", (dtype) => {
  test.each<ReduceOp>(["sum", "prod"])("%s: exactly the orders that arithmetic sees", (op) => {
    const call = { dtype, op, present: 4 };
    for (const a of orders.slice(0, 6)) {
      for (const b of orders) {
        const found = witnessOf(call, [
          { order: a, rounding: "fused" },
          { order: b, rounding: "fused" },
        ]);
        expect(found !== undefined, `${a} and ${b}`).toBe(isVisible(a, b));
        if (found !== undefined) expect(found.results[0]).not.toBe(found.results[1]);
      }
    }
  });
});

test.each<[DType, ReduceOp]>([
  ["float32", { preMul: 0.3 }],
  ["bfloat16", { preMul: 0.3 }],
  ["float64", "avg"],
  ["bfloat16", "avg"],
  ["float16", "avg"],
])("%s: fused and separate products differ, %o", (dtype, op) => {
  for (const ranks of [2, 3, 4, 8]) {
    const order = Array.from({ length: ranks }, (_, rank) => rank);
    const found = witnessOf({ dtype, op, present: ranks }, [
      { order, rounding: "fused" },
      { order, rounding: "separate" },
    ]);
    expect(found, `${ranks} ranks`).toBeDefined();
  }
});

test("the results are those of the folds, by hand", () => {
  const found = witnessOf({ dtype: "bfloat16", op: "sum", present: 3 }, [
    { order: [0, 1, 2], rounding: "fused" },
    { order: [2, 1, 0], rounding: "fused" },
  ]);
  // 512 - 512 + 1 loses nothing; in bfloat16 1 - 512 is -512.
  expect(found).toEqual({ contributions: [512, -512, 1], results: ["0x3f80", "0x0000"] });
});

test("a rank beyond the present ones contributes nothing", () => {
  const found = witnessOf({ dtype: "float32", op: "sum", present: 3 }, [
    { order: [2, 1, 0], rounding: "fused" },
    { order: [3, 0, 2, 1], rounding: "fused" },
  ]);
  expect(found?.contributions).toHaveLength(3);
});

test("integers have none", () => {
  const folds = [0, 1].map((first) => ({
    order: [first, 1 - first, 2],
    rounding: "fused" as const,
  }));
  const [a, b] = folds as [(typeof folds)[0], (typeof folds)[0]];
  expect(witnessOf({ dtype: "int32", op: "sum", present: 3 }, [a, b])).toBeUndefined();
});
