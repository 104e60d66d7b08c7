/** Worlds that follow the same machine share its plans; a machine that is set up in another way has plans of its own. */
import { describe, expect, test } from "vitest";
import { plannersOf } from "../../../src/algorithms/index.ts";

const question = {
  collective: "allReduce",
  ranks: 4,
  root: -1,
  dtype: "float32",
  op: "sum",
  count: 1000,
  ordered: true,
  place: undefined,
} as const;

describe("plans", () => {
  test("are built once for a named machine", () => {
    const plan = plannersOf({})(4).of(question);
    expect(plannersOf({})(8).of(question)).toBe(plan);
    expect(plannersOf({ like: "nccl-2.28", topology: "h200x8" })(4).of(question)).toBe(plan);
  });

  test("differ where NCCL's settings differ, or an algorithm was chosen", () => {
    const plan = plannersOf({})(4).of(question);
    const forced = plannersOf({ like: "nccl-2.28", plan: { algorithm: "Tree" } })(4).of(question);
    expect(forced.name).not.toBe(plan.name);
    expect(plannersOf({ algorithms: { allReduce: "linear" } })(4).of(question).name).toBe("linear");
    expect(plannersOf({})(4).of(question)).toBe(plan);
  });
});
