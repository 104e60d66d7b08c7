/**
 * Invariance by brute force: every count of a range is planned by itself, every element is looked at. Shares `ncclPlan` with what
 * it judges, and nothing of the breakpoints, the classes or the walks.
 */
import {
  elementPlan,
  type FoldOrder,
  type NcclPlan,
  ncclPlan,
  type PlanRequest,
} from "twinccl/algorithms";

/** A kind of call. */
export type Kind = Omit<PlanRequest, "count">;

/** Classes of all elements of all blocks under one count: `[block][element]`. */
function foldsOf(kind: Kind, count: number, present = kind.topology.ranks): string[][] {
  const plan = ncclPlan({ ...kind, count });
  const blocks = kind.collective === "reduceScatter" ? kind.topology.ranks : 1;
  const folds = Array.from({ length: blocks }, () => new Array<string>(count));
  // Pieces share their orders.
  const texts: Record<string, Map<FoldOrder, string>> = {};
  const foldOf = (order: FoldOrder, rounding: string): string => {
    texts[rounding] ??= new Map();
    const fold = texts[rounding].get(order) ?? foldText(plan, order, rounding, present);
    texts[rounding].set(order, fold);
    return fold;
  };
  for (const { block, offset, length, order } of plan.pieces) {
    const own = folds[block] as string[];
    const end = offset + length;
    if (plan.rounding !== "byPosition") own.fill(foldOf(order, plan.rounding), offset, end);
    else {
      for (let element = offset; element < end; element++) {
        own[element] = foldOf(order, elementPlan(plan, element, block).rounding);
      }
    }
  }
  return folds;
}

function foldText(
  { op, dtype, ranks }: NcclPlan,
  order: FoldOrder,
  rounding: string,
  present: number,
): string {
  if (op === "min" || op === "max" || dtype.includes("int")) return "exact";
  const scaled = op === "avg" || typeof op === "object";
  const fused = scaled && rounding === "fused";
  return `${text(order, present, fused)}${scaled ? rounding : ""}${ranks === 1 ? "copy" : ""}`;
}

/** Each fold as a pair; a fused product has the side of the rank that multiplies. */
function text(order: FoldOrder, present: number, fused: boolean): string {
  let folded = "";
  for (const each of order) {
    const own =
      typeof each !== "number" ? text(each, present, fused) : each < present ? `${each}` : "";
    if (own === "" || folded === "") folded += own;
    else if (fused && typeof each === "number") folded = `[${folded} then ${own}]`;
    else folded = folded < own ? `[${folded} ${own}]` : `[${own} ${folded}]`;
  }
  return folded;
}

/** Counts of a range: multiples of a row. */
export function countsOf(from: number, to: number, row: number): number[] {
  const all = Array.from({ length: to - from + 1 }, (_, at) => from + at);
  return all.filter((count) => count % row === 0);
}

/** The smallest count under which an element differs from its fold under a smaller one, and that element. */
export function sizeDifference(kind: Kind, counts: readonly number[]): number[] | undefined {
  const known: (string | undefined)[][] = [];
  for (const count of counts) {
    for (const [block, folds] of foldsOf(kind, count).entries()) {
      known[block] ??= [];
      const own = known[block] as (string | undefined)[];
      const element = folds.findIndex((fold, i) => own[i] !== undefined && own[i] !== fold);
      if (element >= 0) return [count, element];
      own.splice(0, folds.length, ...folds);
    }
  }
  return undefined;
}

/** The smallest count with two places of different folds. */
export function placeDifference(
  kind: Kind,
  counts: readonly number[],
  row: number,
): number | undefined {
  return counts.find((count) => {
    const [first = [], ...others] = foldsOf(kind, count);
    if (others.some((folds) => folds.some((fold, i) => fold !== first[i]))) return true;
    return first.some((fold, i) => i >= row && fold !== first[i % row]);
  });
}

/** The smallest count under which two kinds of call fold an element differently, and the first such element. */
export function kindDifference(a: Kind, b: Kind, counts: readonly number[]): number[] | undefined {
  const present = Math.min(a.topology.ranks, b.topology.ranks);
  for (const count of counts) {
    const others = foldsOf(b, count, present);
    for (const [block, folds] of foldsOf(a, count, present).slice(0, present).entries()) {
      const element = folds.findIndex((fold, i) => fold !== others[block]?.[i]);
      if (element >= 0) return [count, element];
    }
  }
  return undefined;
}
