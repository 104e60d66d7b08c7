/** The range of the arbitraries, and the promises about their contents. */

import fc from "fast-check";
import { bytesOf, dtypeInfo, dtypes, InvalidArgumentError } from "twinccl";
import {
  bitsPayload,
  communicatorsOf,
  countsMatrix,
  countsUpTo,
  dtypesOf,
  exactPayload,
  lifeCycleCommands,
  type Program,
  programs,
  reduceOps,
  seeds,
  worldSizes,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { reduceOpFault } from "../../../src/api/reduce-op.ts";
import { bitsFromBytes, isFloat } from "../../../src/testing/oracle/elements.ts";
import { decode, oracleFold, oracleFormats } from "../../../src/testing/oracle/rounding.ts";

const sample = <T>(arbitrary: fc.Arbitrary<T>, numRuns = 400): T[] =>
  fc.sample(arbitrary, { seed: 5, numRuns });

const some = { dtype: "float32", size: 2, count: 3 } as const;

describe("parts", () => {
  test("sizes, dtypes, operators, counts and seeds stay within their constraints", () => {
    expect(new Set(sample(worldSizes({ min: 2, max: 4 })))).toEqual(new Set([2, 3, 4]));
    expect(new Set(sample(worldSizes())).size).toBe(17);
    expect(new Set(sample(dtypesOf()))).toEqual(new Set(dtypes));
    for (const dtype of sample(dtypesOf({ kinds: ["float"] }))) expect(isFloat(dtype)).toBe(true);
    for (const dtype of dtypes) {
      for (const op of sample(reduceOps(dtype))) expect(reduceOpFault(op, dtype)).toBeUndefined();
    }
    for (const matrix of sample(countsMatrix(3, { max: 2 }))) {
      expect(matrix.map((row) => row.length)).toEqual([3, 3, 3]);
      expect(Math.max(...matrix.flat())).toBeLessThanOrEqual(2);
    }
    expect(sample(seeds()).every(Number.isSafeInteger)).toBe(true);
  });

  test("counts keep to both of their bounds", () => {
    for (const [min, max] of [
      [0, 40],
      [5, 9],
      [18, 30],
      [67, 67],
      [100, 120],
    ] as const) {
      const counts = sample(countsUpTo({ min, max }));
      expect(Math.min(...counts)).toBeGreaterThanOrEqual(min);
      expect(Math.max(...counts)).toBeLessThanOrEqual(max);
    }
    const entries = sample(countsMatrix(2, { min: 3, max: 5 })).flat(2);
    expect(new Set(entries)).toEqual(new Set([3, 4, 5]));
  });

  test.each<[string, string, () => unknown]>([
    ["countsUpTo", "most", () => countsUpTo({ most: 3 } as object)],
    ["countsUpTo", "max", () => countsUpTo({ min: 5, max: 4 })],
    ["countsUpTo", "min", () => countsUpTo({ min: -1 })],
    ["worldSizes", "min", () => worldSizes({ min: 0 })],
    ["countsMatrix", "size", () => countsMatrix(Number.NaN)],
    ["dtypesOf", "kinds", () => dtypesOf({ kinds: ["int" as "float"] })],
    ["reduceOps", "payload", () => reduceOps("int8", { payload: "bit" as "bits" })],
    ["exactPayload", "op", () => exactPayload({ ...some, op: "mean" as "avg" })],
    ["exactPayload", "op", () => exactPayload({ ...some } as never)],
    ["exactPayload", "dtype", () => exactPayload({ ...some, op: "sum", dtype: "f32" as "int8" })],
    ["exactPayload", "ranks", () => exactPayload({ ...some, op: "sum", ranks: 3 } as never)],
    ["bitsPayload", "count", () => bitsPayload({ ...some, count: 2.5 })],
    ["programs", "stepLimit", () => programs({ stepLimit: 1 } as object)],
    ["programs", "payload", () => programs({ payload: "bit" as "bits" })],
    ["programs", "steps", () => programs({ steps: 3 as never })],
    ["programs", "steps", () => programs({ steps: ["calls" as "call"] })],
    ["programs", "kinds", () => programs({ kinds: ["allreduce" as "allReduce"] })],
    ["programs", "sizes", () => programs({ sizes: 4 as never })],
    ["programs", "maxSteps", () => programs({ maxSteps: 0 })],
    ["lifeCycleCommands", "commands", () => lifeCycleCommands({ commands: 3 } as object)],
    ["lifeCycleCommands", "maxRanks", () => lifeCycleCommands({ maxRanks: 0 })],
  ])("%s refuses a wrong %s by name", (subject, field, make) => {
    expect(make).toThrow(InvalidArgumentError);
    expect(make).toThrow(expect.objectContaining({ field }));
    expect(make).toThrow(`${subject}: ${field}: `);
  });

  test.each(dtypes)("%s: exact contents fold to the same bits in every order", (dtype) => {
    const size = 8;
    for (const op of sample(reduceOps(dtype), 40)) {
      const [contents] = sample(exactPayload({ dtype, op, size, count: 6 }), 1);
      const byRank = (contents ?? []).map((array) =>
        bitsFromBytes(dtype, new Uint8Array(array.buffer, array.byteOffset, array.byteLength)),
      );
      for (let i = 0; i < 6; i++) {
        const column = byRank.map((bits) => bits[i] ?? 0n);
        const fold = (contributions: readonly bigint[], rounding: "fused" | "separate"): string => {
          const bits = oracleFold({ dtype, op, ranks: size, rounding, contributions });
          const zero = isFloat(dtype) && decode(oracleFormats[dtype], bits).kind === "zero";
          return zero && (op === "min" || op === "max") ? "zero" : String(bits);
        };
        const turned = [...column.slice(3), ...column.slice(0, 3)].reverse();
        expect(fold(turned, "separate"), `${dtype} ${JSON.stringify(op, String)}`).toBe(
          fold(column, "fused"),
        );
      }
    }
  });

  test.each(dtypes.filter(isFloat))(
    "%s: any bits reach NaN, infinity, subnormals, zeros",
    (dtype) => {
      if (!isFloat(dtype)) return;
      const format = oracleFormats[dtype];
      const kinds = new Set<string>();
      for (const [array] of sample(bitsPayload({ dtype, size: 1, count: 40 }), 20)) {
        if (array === undefined) continue;
        expect(array.byteLength).toBe(40 * bytesOf(dtype));
        for (const bits of bitsFromBytes(dtype, new Uint8Array(array.buffer))) {
          const { kind } = decode(format, bits);
          const size = BigInt.asUintN(format.width - 1, bits);
          const subnormal = kind === "finite" && size < 1n << BigInt(format.precision - 1);
          kinds.add(subnormal ? "subnormal" : kind);
        }
      }
      const needed = ["nan", "zero", "finite", "subnormal"];
      expect([...kinds]).toEqual(expect.arrayContaining(needed));
      expect(kinds.has("infinity")).toBe(format.hasInfinity);
    },
  );
});

describe("programs", () => {
  const drawn = sample(programs(), 3000);
  const calls = (program: Program) =>
    program.steps.flatMap((step) => (step.kind === "call" ? [step.call] : step.calls));

  test("reach every kind of call, step, issue, form, dtype, operator and count", () => {
    const all = drawn.flatMap(calls);
    expect(new Set(all.map(({ kind }) => kind)).size).toBe(14);
    const steps = new Set(drawn.flatMap(({ steps }) => steps.map(({ kind }) => kind)));
    expect([...steps].sort()).toEqual(["call", "group", "replay"]);
    expect(new Set(drawn.map(({ issue }) => issue)).size).toBe(2);
    const data = all.flatMap((call) => (call.kind === "barrier" ? [] : [call]));
    expect(new Set(data.map(({ dtype }) => dtype)).size).toBe(Object.keys(dtypeInfo).length);
    expect(new Set(data.map(({ placement }) => placement.form)).size).toBe(3);
    const counts = data.flatMap((call) => (call.kind === "allReduce" ? [call.count] : []));
    for (const count of [0, 1, 7, 13]) expect(counts).toContain(count);
    const ops = data.flatMap((call) => ("op" in call ? [call] : []));
    expect(new Set(ops.map(({ op }) => (typeof op === "string" ? op : "preMul"))).size).toBe(6);
    expect(ops.some(({ scalars }) => new Set(scalars).size > 1)).toBe(true);
  });

  test("split into several communicators, some of them nested, some turned round", () => {
    const used = drawn.map((program) => new Set(program.steps.map(({ comm }) => comm)).size);
    expect(Math.max(...used)).toBeGreaterThan(3);
    const splits = drawn.flatMap((program) => program.splits);
    expect(splits.some(({ parent }) => parent > 0)).toBe(true);
    expect(splits.some(({ colors }) => colors.includes(null))).toBe(true);
    const example = { size: 4, splits: [{ parent: 0, colors: [1, 0, 1, null], reversed: true }] };
    expect(communicatorsOf(example)).toEqual([[0, 1, 2, 3], [1], [2, 0]]);
  });

  test("keep to the requested kinds and sizes", () => {
    const only = programs({
      kinds: ["gather"],
      sizes: fc.constant(3),
      maxSteps: 1,
      maxSplits: 0,
    });
    for (const program of sample(only, 50)) {
      expect(program).toMatchObject({ size: 3, splits: [] });
      expect(program.steps).toHaveLength(1);
      for (const { kind } of calls(program)) expect(kind).toBe("gather");
    }
  });
});
