/** Arbitraries of the kit once shrank no further than the values that they favour: a law of `n >= 6` ended at 17. */
import fc from "fast-check";
import { dtypes } from "twinccl";
import {
  countsMatrix,
  countsUpTo,
  dtypesOf,
  type Program,
  programs,
  reduceOps,
  worldSizes,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";

/** The cases that a check of a law ends at, for many seeds, each once, in order of their text. */
function ends<T>(cases: fc.Arbitrary<T>, fails: (value: T) => boolean, seeds = 40): unknown[] {
  const found = new Set<string>();
  for (let seed = 0; seed < seeds; seed++) {
    const { counterexample } = fc.check(
      fc.property(cases, (value) => !fails(value)),
      { seed },
    );
    if (counterexample !== null) found.add(JSON.stringify(counterexample[0]));
  }
  return [...found].sort().map((text) => JSON.parse(text));
}

describe("shrinking ends at the smallest failing case", () => {
  test.each([0, 1, 4, 6, 14, 18, 39, 40])("of counts from %i on", (least) => {
    expect(ends(countsUpTo(), (count) => count >= least)).toEqual([least]);
  });

  test("of counts between bounds", () => {
    expect(ends(countsUpTo({ min: 6, max: 9 }), () => true)).toEqual([6]);
    expect(ends(countsUpTo({ min: 18, max: 30 }), (count) => count > 20)).toEqual([21]);
  });

  test.each(dtypes.map((dtype, at) => [dtype, at] as const))(
    "of dtypes from %s on",
    (dtype, at) => {
      expect(ends(dtypesOf(), (each) => dtypes.indexOf(each) >= at)).toEqual([dtype]);
    },
  );

  test("of dtypes that are not adjacent", () => {
    expect(ends(dtypesOf(), (dtype) => dtype === "int32" || dtype === "uint64")).toEqual(["int32"]);
    expect(ends(dtypesOf({ kinds: ["float"] }), () => true)).toEqual(["float16"]);
  });

  test("of operators", () => {
    expect(ends(reduceOps("int8"), () => true)).toEqual(["sum"]);
    expect(ends(reduceOps("int8"), (op) => op === "max" || op === "avg")).toEqual(["max"]);
    expect(ends(reduceOps("float32"), (op) => typeof op === "object")).toEqual([{ preMul: 1 }]);
  });

  test("of numbers of ranks, and of counts by rank", () => {
    expect(ends(worldSizes(), (size) => size >= 6)).toEqual([6]);
    const busy = (matrix: number[][]): boolean => (matrix[1]?.[0] ?? 0) >= 2;
    expect(ends(countsMatrix(2), busy)).toEqual([
      [
        [0, 0],
        [2, 0],
      ],
    ]);
  });

  test("of programs", () => {
    const fails = ({ size, steps }: Program): boolean =>
      steps.some(
        (step) =>
          step.kind === "call" &&
          step.call.kind === "allReduce" &&
          step.call.count >= 6 &&
          step.call.op !== "sum" &&
          size >= 3,
      );
    const least = ends(programs({ maxSplits: 0, maxSteps: 1 }), fails, 4);
    expect(least).toMatchObject([
      { size: 3, steps: [{ kind: "call", call: { count: 6, dtype: "int8", op: "prod" } }] },
    ]);
  });
});

test("the cases of a seed have not changed with it", () => {
  const sample = <T>(cases: fc.Arbitrary<T>): T[] => fc.sample(cases, { seed: 5, numRuns: 12 });
  expect(sample(countsUpTo())).toMatchInlineSnapshot(`
    [
      2,
      17,
      1,
      14,
      13,
      0,
      27,
      13,
      4,
      3,
      28,
      0,
    ]
  `);
  expect(sample(dtypesOf())).toMatchInlineSnapshot(`
    [
      "float32",
      "float32",
      "float16",
      "uint64",
      "int64",
      "float16",
      "float64",
      "int8",
      "float8e5m2",
      "bfloat16",
      "uint32",
      "float16",
    ]
  `);
  expect(sample(reduceOps("int8"))).toMatchInlineSnapshot(`
    [
      "max",
      "max",
      "avg",
      {
        "preMul": -128n,
      },
      "max",
      "max",
      "max",
      "sum",
      {
        "preMul": 127n,
      },
      "avg",
      "max",
      "min",
    ]
  `);
});
