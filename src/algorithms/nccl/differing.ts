/**
 * Elements of a call with bits that may differ between two plans.
 *
 * Both plans are cut at each other's borders. Inside such a range the fold orders are constant, and rounding by position
 * repeats. An element is counted when its order or its rounding differs; its bits then depend on the data.
 */

import { reduceOpName } from "../../api/backend-entry.ts";
import { dtypeInfo } from "../../api/dtype.ts";
import { InvalidArgumentError } from "../../api/errors.ts";
import { assertArgument, hasFields } from "../arguments.ts";
import { roundingAt } from "./explain.ts";
import type { FoldOrder } from "./fold-order.ts";
import { isScaled, patternBytes } from "./plan.ts";
import type { NcclPlan, Piece } from "./plan-types.ts";
import { assertPlan, blocksOf } from "./rules.ts";

/** The difference between two plans of one call. */
export interface Difference {
  /** Elements that may differ, of `elements` in all output blocks. */
  readonly differing: number;
  readonly elements: number;
  /** The first of them, and its block; `undefined` when there is none. */
  readonly first: { readonly block: number; readonly element: number } | undefined;
}

/** Compares two plans of the same call. */
export function differing(a: NcclPlan, b: NcclPlan): Difference {
  assertSameCall(a, b);
  const elements = blocksOf(a.collective, a.ranks) * a.count;
  let found = 0;
  let first: Difference["first"];
  if (!seesOrder(a)) return { differing: 0, elements, first };
  forEachRange(a, b, (inA, inB, from, to) => {
    const range = differingIn(a, b, inA, inB, from, to);
    if (range.count === 0) return;
    found += range.count;
    first ??= { block: inA.block, element: range.first };
  });
  return { differing: found, elements, first };
}

/** `35.2 % of the elements may differ, first at 5376`. */
export function differenceText(difference: Difference): string {
  const isDifference = hasFields(difference, { differing: "number", elements: "number" });
  assertArgument(
    isDifference,
    "differenceText",
    "difference",
    difference,
    "that of two plans, by differing",
  );
  const { differing: count, elements, first } = difference;
  if (first === undefined) return "every element is equal";
  const share = ((100 * count) / elements).toFixed(1);
  const block = first.block === 0 ? "" : ` of block ${first.block}`;
  return `${share} % of the elements may differ, first at ${first.element}${block}`;
}

/** True for sums and products of floats; the bits of all other folds are equal in every order. */
export function seesOrder({ dtype, op }: Pick<NcclPlan, "dtype" | "op">): boolean {
  return op !== undefined && op !== "min" && op !== "max" && dtypeInfo[dtype].kind === "float";
}

/** Calls `visit` for each range on which both plans stay in one piece. */
function forEachRange(
  a: NcclPlan,
  b: NcclPlan,
  visit: (inA: Piece, inB: Piece, from: number, to: number) => void,
): void {
  const left = a.pieces.filter((piece) => piece.length > 0);
  const right = b.pieces.filter((piece) => piece.length > 0);
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    const inA = left[i] as Piece;
    const inB = right[j] as Piece;
    const endA = inA.offset + inA.length;
    const endB = inB.offset + inB.length;
    visit(inA, inB, Math.max(inA.offset, inB.offset), Math.min(endA, endB));
    if (endA <= endB) i++;
    if (endB <= endA) j++;
  }
}

interface RangeDifference {
  readonly count: number;
  readonly first: number;
}

function differingIn(
  a: NcclPlan,
  b: NcclPlan,
  inA: Piece,
  inB: Piece,
  from: number,
  to: number,
): RangeDifference {
  const multiplies = a.op !== undefined && isScaled(a.op);
  const all = { count: to - from, first: from };
  if (!sameFold(inA.order, inB.order, multiplies && fuses(a)) || !sameAccumulator(a, b)) return all;
  if (a.rounding !== "byPosition" && b.rounding !== "byPosition") {
    return a.rounding === b.rounding ? { count: 0, first: -1 } : all;
  }
  // Both roundings repeat with the pattern, so one period decides the rest.
  const period = patternBytes / dtypeInfo[a.dtype].bytes;
  let count = 0;
  let first = -1;
  for (let element = from; element < Math.min(to, from + period); element++) {
    const same = roundingAt(a, element - inA.offset) === roundingAt(b, element - inB.offset);
    if (same) continue;
    if (first < 0) first = element;
    count += Math.ceil((to - element) / period);
  }
  return { count, first };
}

/** True for orders of the same bits: operands are interchangeable, unless only the second one's product is fused. */
function sameFold(a: FoldOrder, b: FoldOrder, ordered: boolean): boolean {
  return a === b || associationOf(a, ordered) === associationOf(b, ordered);
}

/** A name of the association: the operands of each fold sorted, but for hops with an order of their own. */
export function associationOf(order: FoldOrder, ordered: boolean): string {
  return order.reduce<string>((folded, each, i) => {
    const isHop = typeof each === "number" && i > 0 && ordered;
    const operand = typeof each === "number" ? `${each}` : associationOf(each, ordered);
    if (i === 0) return operand;
    if (isHop) return `(${folded}<${operand})`;
    // A fold begins with a parenthesis, which sorts before digits: a long chain is not compared at every hop.
    const isSorted = (i > 1 && typeof each === "number") || folded < operand;
    return isSorted ? `(${folded}+${operand})` : `(${operand}+${folded})`;
  }, "");
}

function fuses({ rounding }: NcclPlan): boolean {
  return rounding === "fused" || rounding === "byPosition";
}

function sameAccumulator(a: NcclPlan, b: NcclPlan): boolean {
  return a.accumulator === b.accumulator || a.dtype === "float32";
}

function assertSameCall(a: NcclPlan, b: NcclPlan): void {
  assertPlan("differing", a, "a");
  assertPlan("differing", b, "b");
  const facts = (plan: NcclPlan): Record<string, unknown> => {
    const { collective, ranks, dtype, count, root, op } = plan;
    return {
      collective,
      ranks,
      dtype,
      count,
      root,
      op: op === undefined ? "none" : reduceOpName(op),
    };
  };
  const [left, right] = [facts(a), facts(b)];
  for (const field of Object.keys(left)) {
    if (left[field] === right[field]) continue;
    const headline = `differing: ${field}: found ${left[field]} and ${right[field]}, needs two plans of one call`;
    throw new InvalidArgumentError({ headline }, { field });
  }
}
