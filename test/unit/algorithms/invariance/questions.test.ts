/** Questions of invariance: wrong ones are refused by field, large ones end, and answers state what they need. */
import { CommError, type DType, type ReduceOp } from "twinccl";
import { h200x8, type InvarianceQuestion, invariance, topologies } from "twinccl/algorithms";
import { describe, expect, test, vi } from "vitest";
import { Calls } from "../../../../src/algorithms/invariance/stretches.ts";
import { witnessOf } from "../../../../src/algorithms/invariance/witness.ts";
import { machineOf } from "../../../../src/algorithms/nccl/machines.ts";

const base: InvarianceQuestion = {
  collective: "allReduce",
  ranks: 4,
  dtype: "float32",
  counts: { from: 1, to: 1000 },
};

test.each<[string, object]>([
  ["topology", { topology: "h200x8" }],
  ["topology", { topology: [] }],
  ["topology", { topology: [h200x8, 5] }],
  ["topology", { topology: () => ({}) }],
  ["topology", { topology: () => h200x8(2) }],
  ["op", { op: { preMul: 0 } }],
  ["op", { op: { preMul: Number.NaN } }],
  ["op", { op: { preMul: 1e-300 } }],
  ["op", { dtype: "float16", op: { preMul: 1e6 } }],
])("a wrong %s is refused by name: %j", (field, wrong) => {
  const ask = () => invariance({ ...base, ...wrong } as never);
  expect(ask).toThrow(CommError);
  expect(ask).toThrow(expect.objectContaining({ field }));
});

describe("large questions end", () => {
  test("equal plans are compared once, not cut by cut", () => {
    const counts = { from: 1, to: 1e12 };
    const versions = { ...base, counts, version: ["2.27", "2.28"], ask: ["version"] } as const;
    expect(invariance(versions).answers).toMatchObject([{ isInvariant: true }]);
    const topology = [10, 11].map((gigabitsPerSecond) => {
      return machineOf({
        hosts: 4,
        gpusPerHost: 1,
        network: { kind: "socket", gigabitsPerSecond },
      });
    });
    const hosts = { ...base, counts, topology, ask: ["hosts"] } as const;
    expect(invariance(hosts).answers).toMatchObject([{ isInvariant: true }]);
  });

  test("counts that are too large over LL are refused before any other plan is made", () => {
    const plan = vi.spyOn(Calls.prototype, "plan");
    const ask = () => invariance({ ...base, ranks: 3, counts: { from: 5e11, to: 1e12 } });
    expect(ask).toThrow(/Ring LL: at least .* pieces, the limit is/);
    expect(plan).toHaveBeenCalledTimes(1);
    plan.mockRestore();
  });

  test("contributions are tried within a bound", () => {
    const order = Array.from({ length: 64 }, (_, rank) => rank);
    const found = witnessOf({ dtype: "float32", op: "avg", present: 64 }, [
      { order, rounding: "fused" },
      { order, rounding: "separate" },
    ]);
    expect(found?.results[0]).not.toBe(found?.results[1]);
  });

  test("settings with an order of PAT that follows from the size are left out", () => {
    const { answers, cheapest } = invariance({
      ...{ ...base, collective: "reduceScatter", ranks: 40 },
      topology: topologies["h200-hosts"],
      variables: { NCCL_ALGO: "reducescatter:ring" },
      ask: ["position"],
    });
    expect(answers).toMatchObject([{ isInvariant: false }]);
    expect(cheapest).toEqual([]);
  });
});

describe("conditions of an answer about ranks", () => {
  const provided = (dtype: DType, op: ReduceOp, ranks: readonly number[]): string =>
    invariance({ ...base, dtype, op, ranks, ask: ["ranks"] }).provided.join("; ");

  test("infinities of float8e5m2 end at the first hop, which may be one with a neutral element", () => {
    expect(provided("float8e5m2", "sum", [2, 4])).toContain("no contribution is infinite");
    expect(provided("float8e4m3", "sum", [2, 4])).not.toContain("infinite");
    // Every order of two ranks has a hop.
    expect(provided("float8e5m2", "max", [2, 4])).not.toContain("infinite");
    expect(provided("float8e5m2", "max", [1, 2])).toContain("no contribution is infinite");
  });

  test("a single rank copies NaNs under every operator", () => {
    for (const op of ["sum", "prod", "min", "max"] as const) {
      expect(provided("float16", op, [1, 2])).toContain("a single rank copies them");
      expect(provided("float16", op, [2, 4])).not.toContain("copies");
      expect(provided("int32", op, [1, 2])).not.toContain("copies");
    }
  });

  test("the neutral zero has the sign that the scalar makes negative", () => {
    expect(provided("float32", { preMul: 2 }, [2, 4])).toContain("contribute -0, or +0");
    expect(provided("float32", { preMul: -2 }, [2, 4])).toContain("contribute +0, or -0");
  });
});

test.each(["float32", "float64"] as const)("one condition is about NaNs of %s", (dtype) => {
  const { provided } = invariance({ ...base, dtype, ranks: [1, 2] });
  expect(provided.filter((each) => each.includes("NaN"))).toHaveLength(1);
});
