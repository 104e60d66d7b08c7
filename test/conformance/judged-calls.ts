/** The calls with results that the suite judges. */
import type { Question } from "twinccl";
import type { ProgramCall } from "twinccl/testing";
import type { OracleDType, OracleOp } from "../../src/testing/oracle/rounding.ts";

/** The shape of a call, as `supports` takes it. */
export function questionOf(call: ProgramCall): Question {
  if (call.kind === "barrier") return { collective: "barrier" };
  const { dtype } = call;
  if (call.kind === "allReduce") {
    return { collective: call.kind, dtype, op: call.op, count: call.count };
  }
  if (call.kind === "broadcast") {
    return { collective: call.kind, dtype, count: call.count, root: call.root };
  }
  if (call.kind === "allToAll" || call.kind === "allToAllv")
    return { collective: call.kind, dtype };
  throw new Error(`the suite asks nothing about ${call.kind}`);
}

/** An all-reduce of exact contents. */
export function reduceCall(
  dtype: OracleDType,
  op: OracleOp,
  count: number,
  seed: number,
  size: number,
): ProgramCall {
  // An average is exact where 1/n is; elsewhere the plan's rounding decides, which is not judged here.
  const inexact = op === "avg" && /float/.test(dtype) && !Number.isInteger(Math.log2(size));
  const form = seed % 2 === 0 ? "inPlace" : "apart";
  const placement = { form, lead: seed % 3, tail: 1, host: false } as const;
  const data = { dtype, payload: "exact", seed, placement } as const;
  return { ...data, kind: "allReduce", op: inexact ? "sum" : op, count };
}

/** Copies of arbitrary bits, NaN payloads among them. */
export function copyCalls(dtype: OracleDType, size: number, seed: number): ProgramCall[] {
  const placement = { form: "apart", lead: seed % 3, tail: 2, host: false } as const;
  const data = { dtype, payload: "bits", seed, placement } as const;
  const counts = Array.from({ length: size }, (_, from) =>
    Array.from({ length: size }, (_, to) => (from * 3 + to * 5 + seed) % 4),
  );
  const give = seed % 2 === 0 ? "exchange" : "both";
  return [
    { ...data, kind: "broadcast", count: 11, root: seed % size },
    { ...data, kind: "allToAll", count: 3 },
    { ...data, kind: "allToAllv", counts, give, recv: "exact", order: "packed" },
    { ...data, kind: "allToAllv", counts, give, recv: "allocated", order: "packed" },
    { ...data, kind: "allToAllv", counts, give: "both", recv: "longer", order: "reversed" },
    { kind: "barrier" },
  ];
}
