/**
 * Finds the hop at which two results diverge. Hardware shows only the end of a fold. The other result is therefore searched
 * among intermediate values and among folds in other orders. The first hop in which a matching fold differs is the divergence.
 */

import { foldFor, lanesOf, type ScalarRounding } from "../../algorithms/index.ts";
import { firstDifference } from "../../api/bits.ts";
import type { DType, HostArray, ReduceOp } from "../../api/index.ts";
import { canonicalForm } from "../../golden/outputs.ts";

/** One element and its fold. */
export interface FoldedElement {
  readonly dtype: DType;
  readonly op: ReduceOp;
  /** Ranks in the order of the plan. */
  readonly order: readonly number[];
  /** The contribution of each rank: arrays of one element. */
  readonly contributions: readonly HostArray[];
  /** The other result, of one element. */
  readonly found: HostArray;
}

/** Most ranks for which all orders are tried. */
const maxOrdered = 6;

/** Describes the divergence of a result from the plan's fold. */
export function divergenceText(element: FoldedElement): string {
  const { order, found } = element;
  const isFound = (value: HostArray): boolean =>
    firstDifference(value, found, found.BYTES_PER_ELEMENT) === undefined;
  const planned = `the plan folds ${rankList(order)}`;
  for (let hops = 1; hops < order.length; hops++) {
    const partial = folded(element, order.slice(0, hops), "fused");
    if (isFound(partial))
      return `${planned}; found is what is there before hop ${hops}, r${order[hops]}`;
  }
  for (const rounding of ["fused", "separate"] as const) {
    for (const other of order.length <= maxOrdered ? permutations(order) : rotations(order)) {
      if (!isFound(folded(element, other, rounding))) continue;
      const hop = other.findIndex((rank, i) => rank !== order[i]);
      const how = `found is the fold ${rankList(other)}, products ${rounding === "fused" ? "fused with" : "rounded before"} the sum`;
      return `${planned}; ${how}: parts at hop ${Math.max(hop, 0)}`;
    }
  }
  return `${planned}; found is the fold of no order of the ranks that was tried: parts at hop 0`;
}

/**
 * The fold order of a rank's result, derived from `explain`'s order for rank 0. Results with one owner are folded around the
 * ring, up to that owner.
 */
export function orderEndingAt(order: readonly number[], owner: number): number[] {
  const turn = order.indexOf(owner) + 1;
  return [...order.slice(turn), ...order.slice(0, turn)];
}

function folded(
  { dtype, op, contributions }: FoldedElement,
  order: readonly number[],
  rounding: ScalarRounding,
): HostArray {
  const fold = foldFor(dtype, op, contributions.length, rounding);
  const sources = order.map((rank) => (contributions[rank] as HostArray).slice() as HostArray);
  const result = (sources[0] as HostArray).slice() as HostArray;
  const lanes = (array: HostArray) => lanesOf(dtype, array.buffer, 0, array.byteLength);
  fold.chain(
    lanes(result),
    0,
    sources.map(lanes),
    sources.map(() => 0),
    1,
  );
  fold.finish(lanes(result), 0, 1);
  return canonicalForm(result, dtype, typeof op === "string" ? op : "preMul");
}

function rankList(order: readonly number[]): string {
  return order.map((rank) => `r${rank}`).join(", ");
}

function rotations(order: readonly number[]): number[][] {
  return order.map((_, turn) => [...order.slice(turn), ...order.slice(0, turn)]);
}

function permutations(order: readonly number[]): number[][] {
  if (order.length <= 1) return [[...order]];
  return order.flatMap((first, at) =>
    permutations(order.filter((_, i) => i !== at)).map((rest) => [first, ...rest]),
  );
}
