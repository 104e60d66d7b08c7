/**
 * Orders in which the contributions of ranks are folded: along a ring, and up a tree.
 *
 * A rank of a tree folds its first child's value, its own contribution, then the values of its other children, each of which
 * was folded before. So an order is a list from left to right, and a value that was folded before is a list within it.
 */
import type { Tree } from "./topology.ts";

/** From left to right: a rank's contribution, or an order that is folded by itself and joins as a partial. */
export type FoldOrder = readonly (number | FoldOrder)[];

/** The ranks of an order, from left to right. */
export function ranksOf(order: FoldOrder): readonly number[] {
  if (isFlat(order)) return order;
  return order.flatMap((each) => (typeof each === "number" ? [each] : ranksOf(each)));
}

function isFlat(order: FoldOrder): order is readonly number[] {
  return order.every((each) => typeof each === "number");
}

/** The rank of the first contribution: the sender of a copy. */
export function firstOf(order: FoldOrder): number {
  const [first = -1] = order;
  return typeof first === "number" ? first : firstOf(first);
}

/** An order as a text: `r0 + r1 + (r2 + r3)`; `factor` follows each rank. */
export function orderText(order: FoldOrder, separator: string, factor = ""): string {
  return order
    .map((each) => {
      if (typeof each === "number") return `r${each}${factor}`;
      const text = orderText(each, separator, factor);
      return each.length === 1 ? text : `(${text})`;
    })
    .join(separator);
}

/** Orders of each ring, computed once and shared. */
const rotations = new WeakMap<readonly number[], FoldOrder[]>();

/** The order along a ring that ends at position `position`. */
export function orderEndingAt(ring: readonly number[], position: number): FoldOrder {
  let known = rotations.get(ring);
  if (known === undefined) {
    known = [];
    rotations.set(ring, known);
  }
  known[position] ??= [...ring.slice(position + 1), ...ring.slice(0, position + 1)];
  return known[position] as FoldOrder;
}

/** The order along a ring that ends at a rank. */
export function orderEndingAtRank(ring: readonly number[], rank: number): FoldOrder {
  return orderEndingAt(ring, ring.indexOf(rank));
}

const treeOrders = new WeakMap<Tree, FoldOrder>();

/** The order of a tree, computed once. */
export function treeOrder(tree: Tree): FoldOrder {
  const known = treeOrders.get(tree) ?? orderBelow(tree, tree.root);
  treeOrders.set(tree, known);
  return known;
}

function orderBelow(tree: Tree, rank: number): FoldOrder {
  const [first, ...others] = tree.children[rank] ?? [];
  const rest = others.map((child) => orderBelow(tree, child));
  return first === undefined ? [rank] : [...orderBelow(tree, first), rank, ...rest];
}
