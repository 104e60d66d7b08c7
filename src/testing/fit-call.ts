/** Fits a drawn call to its communicator: roots that exist, counts for each rank, operators that stay exact. */
import { bytesOf, type DType, dtypeInfo, type ReduceOp } from "../api/index.ts";
import { scalarsOf } from "./arbitraries.ts";
import type {
  BlockOrder,
  FoldingCall,
  PayloadClass,
  Placement,
  ProgramCall,
  ProgramDataCall,
} from "./program.ts";
import { randomWords } from "./words.ts";

/** A call before it is fitted. */
export interface CallShape {
  readonly kind: ProgramCall["kind"];
  readonly dtype: DType;
  readonly op: string;
  readonly scalarsDiffer: boolean;
  readonly count: number;
  readonly root: number;
  readonly give: "exchange" | "both";
  readonly recv: "allocated" | "exact" | "longer";
  readonly order: BlockOrder | "even";
  readonly placement: Placement;
  readonly seed: number;
}

/** Where a call is made. */
export interface FitRules {
  readonly size: number;
  readonly payload: PayloadClass;
  readonly within: "call" | "group" | "replay";
}

/** Every kind of call. */
export const kindsOfCalls: readonly ProgramCall["kind"][] = [
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "allGatherv",
  "reduceScatter",
  "reduceScatterv",
  "allToAll",
  "allToAllv",
  "gather",
  "scatter",
  "sendRecv",
  "pair",
  "barrier",
];

/** Collectives that have kernels for symmetric memory, with buffers of equal length on every rank. */
const symmetricKinds: readonly string[] = ["allReduce", "reduceScatter", "allGather"];

/** A legal call. */
export function fittedCall(drawn: CallShape, rules: FitRules): ProgramCall {
  const shape = fittedToMemory(drawn);
  const { kind, dtype, count, seed, placement } = shape;
  const { size, payload } = rules;
  const data = { dtype, payload, seed, placement };
  const root = shape.root % size;
  const next = randomWords(seed ^ 0x1b873593);
  const block = Math.ceil(count / 4);
  const order = shape.order === "reversed" ? "reversed" : "packed";
  const counts = (): number[] =>
    Array.from({ length: size }, () => (next() % 4 === 0 ? 0 : next() % (block + 1)));
  switch (kind) {
    case "barrier":
      return { kind };
    case "broadcast":
      return { ...data, kind, count, root };
    case "allGather":
    case "allToAll":
      return { ...data, kind, count: block };
    case "allGatherv":
      return { ...data, kind, counts: counts(), order };
    case "gather":
    case "scatter": {
      const even = shape.order === "even";
      return {
        ...data,
        kind,
        root,
        order: shape.order,
        counts: even ? all(size, block) : counts(),
      };
    }
    case "allToAllv":
      return { ...data, kind, ...exchangeOf(shape, rules, next), order };
    case "pair":
    case "sendRecv":
      return transferOf(shape, rules, next);
    case "allReduce":
      return { ...data, kind, count, ...operatorOf(shape, rules) };
    case "reduce":
      return { ...data, kind, count, root, ...operatorOf(shape, rules) };
    case "reduceScatter":
      return { ...data, kind, count: block, ...operatorOf(shape, rules) };
    case "reduceScatterv":
      return { ...data, kind, counts: counts(), ...operatorOf(shape, rules) };
  }
}

/**
 * Symmetric memory only where it means something, and there with elements in fours: NCCL defines nothing for narrow
 * ones off a word's start. The ranks of one call reach into each other's buffers, so their scalars are the same.
 */
function fittedToMemory(shape: CallShape): CallShape {
  const { symmetric, ...placement } = shape.placement;
  if (symmetric !== true || !symmetricKinds.includes(shape.kind)) return { ...shape, placement };
  const inFours = { ...placement, lead: 4 * placement.lead, symmetric, host: false };
  const blockInFours = shape.kind === "allReduce" ? 4 : 16;
  return {
    ...shape,
    placement: inFours,
    count: blockInFours * Math.ceil(shape.count / blockInFours),
    scalarsDiffer: false,
  };
}

function all(size: number, count: number): number[] {
  return new Array<number>(size).fill(count);
}

/** Uneven counts with many zeros; what needs an answer from the host has no place in a group or capture. */
function exchangeOf(
  { give, recv }: CallShape,
  { size, within }: FitRules,
  next: () => number,
): Pick<ProgramDataCall & { kind: "allToAllv" }, "counts" | "give" | "recv"> {
  const fullness = next() % 5;
  const counts = Array.from({ length: size }, () =>
    Array.from({ length: size }, () => (next() % 4 < fullness ? next() % 6 : 0)),
  );
  if (within === "call") return { counts, give, recv };
  return { counts, give: "both", recv: recv === "allocated" ? "exact" : recv };
}

/** A send and a receive of two ranks, or a permutation of all; captured calls are the same on every rank. */
function transferOf(
  { kind, dtype, count, seed, placement, root }: CallShape,
  { size, payload, within }: FitRules,
  next: () => number,
): ProgramCall {
  const data = { dtype, payload, seed, placement, count };
  if (kind === "pair" && within !== "replay" && size > 1) {
    const from = root % size;
    return { ...data, kind, from, to: (from + 1 + (next() % (size - 1))) % size };
  }
  const to = Array.from({ length: size }, (_, rank) => rank);
  for (let last = size - 1; last > 0; last--) {
    const other = next() % (last + 1);
    [to[last], to[other]] = [to[other] ?? 0, to[last] ?? 0];
  }
  return { ...data, kind: "sendRecv", to };
}

/** The drawn operator, or a sum where it would not be exact. */
function operatorOf(
  { op, dtype, scalarsDiffer, seed }: CallShape,
  { size, payload }: FitRules,
): Pick<FoldingCall, "op" | "scalars"> {
  const isFloat = dtypeInfo[dtype].kind === "float";
  const rounds = op === "avg" && payload === "exact" && isFloat;
  if (rounds && !Number.isInteger(Math.log2(size))) return { op: "sum" };
  if (op !== "preMul") return { op: op as ReduceOp };
  const list = scalarsOf(dtype, payload);
  const pick = (at: number): number | bigint => list[at % list.length] ?? 1;
  // Scalars that differ by rank would need more digits than a narrow float has for its exact sums.
  const narrow = payload === "exact" && isFloat && bytesOf(dtype) < 4;
  if (!scalarsDiffer || narrow) return { op: { preMul: pick(seed) } };
  const scalars = Array.from({ length: size }, (_, rank) => pick(seed + 3 * rank));
  return { op: { preMul: scalars[0] ?? 1 }, scalars };
}
