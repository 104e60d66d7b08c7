/**
 * Classes of folds: two elements of one class have equal bits for all inputs, elements of two classes differ for some.
 *
 * A class is the order of a fold up to what arithmetic cannot see. Integers, minimum and maximum have one class. The operands
 * of a float sum or product are interchangeable, unless only the product of the second one is fused. Bits of a NaN do
 * not count: they are canonical after a hop, and those of float64 are not known.
 */

import { bytesOf, type DType, dtypeInfo } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import { associationOf, seesOrder } from "../nccl/differing.ts";
import type { ElementRounding } from "../nccl/explain.ts";
import type { FoldOrder } from "../nccl/fold-order.ts";
import { isFusedAt, isScaled, patternBytes } from "../nccl/plan.ts";
import type { NcclPlan } from "../nccl/plan-types.ts";

/** The facts of a call that decide the classes of its folds. */
export interface FoldFacts {
  readonly dtype: DType;
  /** `undefined` for a collective that copies. */
  readonly op: ReduceOp | undefined;
  /** Only ranks below it count: the others contribute the neutral element, which changes no partial. */
  readonly present: number;
}

/** True for averages and pre-multiplied sums of floats. */
export function scales({ dtype, op }: Pick<FoldFacts, "dtype" | "op">): boolean {
  return op !== undefined && isScaled(op) && dtypeInfo[dtype].kind === "float";
}

/** Associations by order, of which plans share a few: by the ranks that count, and by what is fused. */
const associations = new WeakMap<FoldOrder, Map<string, string>>();

/** The class of an order with one rounding. */
export function classOf(facts: FoldFacts, order: FoldOrder, rounding: ElementRounding): string {
  if (!seesOrder(facts)) return "any order";
  const { present } = facts;
  const isFused = rounding === "fused";
  const known = associations.get(order) ?? new Map<string, string>();
  associations.set(order, known);
  const key = `${present} ${isFused}`;
  const association = known.get(key) ?? associationOf(among(order, present), isFused);
  known.set(key, association);
  return scales(facts) ? `${association} ${rounding}` : association;
}

/** An order without the ranks from `present` on. */
function among(order: FoldOrder, present: number): FoldOrder {
  return order.flatMap((each): FoldOrder => {
    if (typeof each === "number") return each < present ? [each] : [];
    const inner = among(each, present);
    return inner.length === 0 ? [] : [inner];
  });
}

/** Consecutive elements of a block with one class, or with two that alternate by position. */
export interface Segment {
  readonly from: number;
  /** The element after the last. */
  readonly to: number;
  readonly fold: string;
  /** The class of elements with products that are rounded separately, where the position decides. */
  readonly separate?: string;
  /** The element from which positions count. */
  readonly origin: number;
}

/** The classes of all elements of a block under a plan. */
export function segmentsOf(plan: NcclPlan, block: number, present: number): Segment[] {
  const { dtype, op, rounding } = plan;
  const facts = { dtype, op, present };
  const byPosition = rounding === "byPosition";
  return plan.pieces
    .filter((piece) => piece.block === block && piece.length > 0)
    .map(({ offset, length, order }) => ({
      from: offset,
      to: offset + length,
      origin: offset,
      fold: classOf(facts, order, byPosition ? "fused" : rounding),
      ...(byPosition && { separate: classOf(facts, order, "separate") }),
    }));
}

/**
 * The first element below `to` of a class other than that of the element `shift` places later in `others`; `undefined` if there
 * is none.
 */
export function firstDifference(
  segments: readonly Segment[],
  others: readonly Segment[],
  { shift, to, dtype }: { readonly shift: number; readonly to: number; readonly dtype: DType },
): number | undefined {
  let j = 0;
  for (const segment of segments) {
    for (; j < others.length; j++) {
      const other = others[j] as Segment;
      const from = Math.max(segment.from, other.from - shift);
      const end = Math.min(segment.to, other.to - shift, to);
      const found =
        from < end ? differenceIn(segment, other, { from, end, shift, dtype }) : undefined;
      if (found !== undefined) return found;
      if (other.to - shift > segment.to) break;
    }
    if (segment.to >= to) break;
  }
  return undefined;
}

interface Range {
  readonly from: number;
  readonly end: number;
  readonly shift: number;
  readonly dtype: DType;
}

function differenceIn(
  a: Segment,
  b: Segment,
  { from, end, shift, dtype }: Range,
): number | undefined {
  if (a.separate === undefined && b.separate === undefined) {
    return a.fold === b.fold ? undefined : from;
  }
  // Positions repeat, so one period decides the rest.
  const bytes = bytesOf(dtype);
  for (let element = from; element < Math.min(end, from + patternBytes / bytes); element++) {
    if (classAt(a, element, bytes) !== classAt(b, element + shift, bytes)) return element;
  }
  return undefined;
}

function classAt(
  { fold, separate = fold, origin }: Segment,
  element: number,
  bytes: number,
): string {
  return isFusedAt((element - origin) * bytes) ? fold : separate;
}
