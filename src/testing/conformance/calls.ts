/** The calls with results that the conformance suite judges. Contents that fold are exact, but for those of `roundedCalls`. */
import { type DType, dtypes, type Question, type ReduceOp } from "../../api/index.ts";
import type { CollectiveDataCall } from "../call-memory.ts";
import { isFloat, widths } from "../oracle/elements.ts";
import type {
  BlockOrder,
  DataCall,
  Placement,
  ProgramCall,
  ProgramFoldingCall,
} from "../program.ts";

/** The shape of a call, as `supports` takes it. */
export function questionOf(call: ProgramCall): Question {
  if (call.kind === "barrier") return { collective: "barrier" };
  const { dtype } = call;
  if (call.kind === "pair") return { collective: "send", dtype };
  if (call.kind === "sendRecv") return { collective: call.kind, dtype };
  return {
    collective: call.kind,
    dtype,
    ...("op" in call && { op: call.op }),
    ...("count" in call && { count: call.count }),
    ...("root" in call && { root: call.root }),
    ...("counts" in call && { counts: call.kind === "allToAllv" ? call.counts : [call.counts] }),
  };
}

/** The fields of a call with data, with a placement that changes with the seed. */
function data(dtype: DType, seed: number, payload: DataCall["payload"] = "exact"): DataCall {
  const form = seed % 2 === 0 ? "inPlace" : "apart";
  return { dtype, payload, seed, placement: { form, lead: seed % 3, tail: 1, host: false } };
}

/** The reductions of every collective that folds, of exact contents. */
export function reduceCalls(
  dtype: DType,
  op: ReduceOp,
  count: number,
  seed: number,
  size: number,
): ProgramCall[] {
  const whole = reduceCall(dtype, op, count, seed, size);
  const { count: _, ...shared } = whole;
  return [
    whole,
    { ...whole, kind: "reduce", root: seed % size },
    { ...shared, kind: "reduceScatter", count: 3 },
    { ...shared, kind: "reduceScatterv", counts: countsOf(size, seed) },
  ];
}

/** An all-reduce of exact contents. */
export function reduceCall(
  dtype: DType,
  op: ReduceOp,
  count: number,
  seed: number,
  size: number,
): Extract<ProgramCall, { readonly kind: "allReduce" }> {
  // An average is exact where 1/n is; elsewhere the plan's rounding decides, which is not judged here.
  const inexact = op === "avg" && /float/.test(dtype) && !Number.isInteger(Math.log2(size));
  return { ...data(dtype, seed), kind: "allReduce", op: inexact ? "sum" : op, count };
}

const roundedOperators: readonly ReduceOp[] = ["sum", "prod", "avg", { preMul: 0.375 }];

/** Reductions that round at nearly every hop. */
export function roundedCalls(size: number): ProgramFoldingCall[] {
  const placement = { form: "inPlace", lead: 1, tail: 1, host: false } as const;
  const callsOf = (dtype: DType, op: ReduceOp, seed: number): ProgramFoldingCall[] => {
    const shared = { dtype, op, payload: "bits", seed, placement } as const;
    return [
      { ...shared, kind: "allReduce", count: 120 },
      { ...shared, kind: "reduce", count: 60, root: size - 1 },
      { ...shared, kind: "reduceScatter", count: 13 },
      { ...shared, kind: "reduceScatterv", counts: upTo(size).map((rank) => 5 + 8 * (rank % 3)) },
    ];
  };
  return dtypes
    .filter(isFloat)
    .flatMap((dtype, at) =>
      roundedOperators.flatMap((op, place) => callsOf(dtype, op, 4 * at + place)),
    );
}

/** Copies of arbitrary bits, NaN payloads among them. */
export function copyCalls(dtype: DType, size: number, seed: number): ProgramCall[] {
  const placement = { form: "apart", lead: seed % 3, tail: 2, host: false } as const;
  const bits = { dtype, payload: "bits", seed, placement } as const;
  const counts = trafficOf(size, seed);
  const give = seed % 2 === 0 ? "exchange" : "both";
  return [
    { ...bits, kind: "broadcast", count: 11, root: seed % size },
    { ...bits, kind: "allToAll", count: 3 },
    { ...bits, kind: "allToAllv", counts, give, recv: "exact", order: "packed" },
    { ...bits, kind: "allToAllv", counts, give, recv: "allocated", order: "packed" },
    { ...bits, kind: "allToAllv", counts, give: "both", recv: "longer", order: "reversed" },
    { ...bits, kind: "allGather", count: 5 },
    { ...bits, kind: "allGatherv", counts: countsOf(size, seed), order: "packed" },
    { ...bits, kind: "gather", root: seed % size, counts: countsOf(size, seed), order: "packed" },
    { ...bits, kind: "scatter", root: seed % size, counts: countsOf(size, seed), order: "packed" },
    { ...bits, kind: "sendRecv", count: 7, to: upTo(size).reverse() },
    { kind: "barrier" },
  ];
}

const orders: readonly BlockOrder[] = ["packed", "reversed"];

/** Numbers 0 to `length - 1`. */
function upTo(length: number): number[] {
  return Array.from({ length }, (_, at) => at);
}

/** Lengths of the blocks of all ranks, zeros among them. */
function countsOf(size: number, seed: number): number[] {
  return upTo(size).map((rank) => (3 * rank + seed) % 4);
}

function trafficOf(size: number, seed: number): number[][] {
  return upTo(size).map((from) => upTo(size).map((to) => (from * 3 + to * 5 + seed) % 4));
}

/** Calls by the collective that they belong to, with every root and every order of blocks. */
export const callsByDuty: Readonly<Record<string, (size: number) => ProgramCall[]>> = {
  "broadcasts from every root": (size) =>
    upTo(size).map((root) => {
      return { ...data("int32", root, "bits"), kind: "broadcast", count: 7, root };
    }),
  "reduces to every root": (size) =>
    upTo(size).map((root) => {
      return { ...data("float32", root), kind: "reduce", op: "sum", count: 5, root };
    }),
  "reduces blocks and scatters them, of equal and of different lengths": (size) => [
    { ...data("int32", 2), kind: "reduceScatter", op: "max", count: 3 },
    { ...data("float32", 3), kind: "reduceScatter", op: "sum", count: 4 },
    { ...data("float32", 4), kind: "reduceScatterv", op: "sum", counts: countsOf(size, 1) },
    { ...data("int64", 5), kind: "reduceScatterv", op: "max", counts: countsOf(size, 3) },
  ],
  "gathers blocks at every root, where offsets say": (size) =>
    upTo(size).flatMap((root) =>
      (["even", ...orders] as const).map((order): ProgramCall => {
        const counts = order === "even" ? upTo(size).fill(2) : countsOf(size, root);
        return { ...data("float16", root, "bits"), kind: "gather", root, counts, order };
      }),
    ),
  "scatters blocks from every root, where offsets say": (size) =>
    upTo(size).flatMap((root) =>
      (["even", ...orders] as const).map((order): ProgramCall => {
        const counts = order === "even" ? upTo(size).fill(2) : countsOf(size, root);
        return { ...data("float32", root, "bits"), kind: "scatter", root, counts, order };
      }),
    ),
  "gathers blocks at all ranks, where offsets say": (size) => [
    { ...data("int32", 2, "bits"), kind: "allGather", count: 3 },
    { ...data("int8", 3, "bits"), kind: "allGather", count: 5 },
    ...orders.map((order, at): ProgramCall => {
      const counts = countsOf(size, at + 1);
      return { ...data("float64", at, "bits"), kind: "allGatherv", counts, order };
    }),
  ],
  "exchanges blocks of all ranks, where offsets say": (size) =>
    orders.map((order, at): ProgramCall => {
      const exchange = { counts: trafficOf(size, at), give: "both", recv: "exact", order } as const;
      return { ...data("int32", at + 1, "bits"), kind: "allToAllv", ...exchange };
    }),
  "multiplies the contribution of each rank by its own scalar": (size) => {
    const root = size - 1;
    return dtypes.flatMap((dtype, at): ProgramCall[] => {
      // Larger scalars would need more digits than a narrow float has for its exact sums.
      const isNarrow = isFloat(dtype) && widths[dtype] < 4;
      const scalars = upTo(size).map((rank) => (isNarrow ? 1 - 2 * (rank % 2) : rank + 2));
      const scaled = { ...data(dtype, at), op: { preMul: scalars[0] as number }, scalars } as const;
      return [
        { ...scaled, kind: "allReduce", count: 6 },
        { ...scaled, kind: "reduce", count: 3, root },
        { ...scaled, kind: "reduceScatter", count: 2 },
        { ...scaled, kind: "reduceScatterv", counts: countsOf(size, at) },
      ];
    });
  },
  "moves and folds blocks of more bytes than 16 bits count": (size) => {
    const [byteLength, root] = [65_600, size - 1];
    const bits = { ...data("int32", 1, "bits"), count: byteLength / 4 };
    return [
      { ...data("float32", 1), kind: "allReduce", op: "sum", count: byteLength / 4 },
      { ...data("int32", 1), kind: "reduce", op: "max", count: byteLength / 4, root },
      { ...data("float64", 1), kind: "reduceScatter", op: "sum", count: byteLength / 8 },
      { ...bits, kind: "broadcast", root },
      { ...bits, kind: "allGather" },
      { ...bits, kind: "allToAll" },
      { ...bits, kind: "sendRecv", to: upTo(size).reverse() },
    ];
  },
  "sends messages to other ranks and to itself": (size) => [
    { ...data("float32", 1, "bits"), kind: "sendRecv", count: 6, to: upTo(size).reverse() },
    ...upTo(size - 1).map((from): ProgramCall => {
      return { ...data("int8", from, "bits"), kind: "pair", count: 3, from, to: from + 1 };
    }),
  ],
};

/** Calls with a plan: every collective with data, from and to several roots. */
export function explainedCalls(size: number): CollectiveDataCall[] {
  return [0, 1, size - 1]
    .flatMap((seed) => [
      ...reduceCalls("float32", "sum", 100, seed, size),
      ...copyCalls("int32", size, seed),
    ])
    .filter(
      (call): call is CollectiveDataCall => call.kind !== "barrier" && call.kind !== "sendRecv",
    );
}

/** A mixture of calls, for groups, recordings and splits. */
export function mixedCalls(size: number, seed: number): ProgramCall[] {
  const counts = countsOf(size, seed);
  const root = seed % size;
  return [
    { ...data("float32", seed), kind: "allReduce", op: "sum", count: 9 },
    { ...data("int32", seed + 1, "bits"), kind: "broadcast", count: 4, root },
    { ...data("int32", seed + 2, "bits"), kind: "allGatherv", counts, order: "reversed" },
    { ...data("int32", seed + 3), kind: "reduce", op: "min", count: 5, root },
  ];
}

/** Calls with all buffers in symmetric memory, of equal lengths on all ranks and at addresses that suit every kernel. */
export function symmetricCalls(): ProgramCall[] {
  const placement = { lead: 4, tail: 4, host: false, symmetric: true } as const;
  const apart = { seed: 1, placement: { ...placement, form: "apart" } } as const;
  const inPlace = { seed: 2, placement: { ...placement, form: "inPlace" } } as const;
  const exact = { dtype: "float32", payload: "exact" } as const;
  return [
    { ...exact, ...apart, kind: "allReduce", op: "sum", count: 12 },
    { ...exact, ...inPlace, kind: "allReduce", op: "sum", count: 12 },
    { ...exact, ...apart, kind: "reduceScatter", op: "sum", count: 4 },
    { ...apart, dtype: "int32", payload: "bits", kind: "allGather", count: 4 },
  ];
}

/** The same call with TypedArrays in place of buffers. */
export function withArrays(call: ProgramCall): ProgramCall {
  if (call.kind === "barrier") return call;
  const placement: Placement = { ...call.placement, host: true };
  return { ...call, placement };
}
