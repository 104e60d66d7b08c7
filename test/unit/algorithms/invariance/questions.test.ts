/** Questions of invariance: large ones end. */
import { type InvarianceQuestion, invariance, topologies } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { witnessOf } from "../../../../src/algorithms/invariance/witness.ts";
import { machineOf } from "../../../../src/algorithms/nccl/machines.ts";

const base: InvarianceQuestion = {
  collective: "allReduce",
  ranks: 4,
  dtype: "float32",
  counts: { from: 1, to: 1000 },
};

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
