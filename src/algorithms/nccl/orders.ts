/**
 * Who is folded before whom.
 *
 * All of Ring's collectives start just after the owner of an element and go round to it; the owner of chunk k of an
 * all-reduce is the rank at ring position k. A tree on one node is a chain, folded from its leaf to its root. Orders
 * of a ring are made once and shared.
 */
import type { ChannelPaths } from "./topology.ts";

/** Ranks in the order in which their contributions are folded. */
export type FoldOrder = readonly number[];

const rotations = new WeakMap<readonly number[], readonly FoldOrder[]>();

/** The order that ends at ring position `position`. */
export function orderEndingAt(ring: readonly number[], position: number): FoldOrder {
  let known = rotations.get(ring);
  if (known === undefined) {
    known = ring.map((_, end) => ring.map((_, step) => at(ring, end + 1 + step)));
    rotations.set(ring, known);
  }
  return known[position] as FoldOrder;
}

/** The order that ends at a rank. */
export function orderEndingAtRank(ring: readonly number[], rank: number): FoldOrder {
  return orderEndingAt(ring, ring.indexOf(rank));
}

/** The order of a tree on one node. */
export function treeOrder({ chain }: ChannelPaths): FoldOrder {
  return chain;
}

/** Ring position `i`, counted round and round. */
export function at(ring: readonly number[], i: number): number {
  return ring[((i % ring.length) + ring.length) % ring.length] as number;
}
