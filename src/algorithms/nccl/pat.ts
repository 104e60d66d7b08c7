/**
 * PAT: NCCL's reduce-scatter and all-gather along binomial trees, for nodes of one rank.
 *
 * The block of a rank d is folded by ranks at distances s behind it. The parent of s clears its lowest bit; so a message
 * travels a power of two. NCCL joins messages of several blocks, as many as fit a step of its buffers. The order in which a
 * rank takes its children follows from that number; up to 32 ranks it is the same for all. All-gathers send the same way back.
 */
import { bytesOf } from "../../api/dtype.ts";
import { type FoldOrder, treeOrder } from "./fold-order.ts";
import type { ChannelPlan, PlannedPart } from "./plan-types.ts";
import type { Tree } from "./topology.ts";

/** Messages of NCCL that a buffer holds, which bound the blocks of large messages. */
const bufferDepth = 8;

/** Distance between the blocks that NCCL joins, for parts of `partBytes` in chunks of `chunkBytes`. */
function patSpacing(ranks: number, chunkBytes: number, partBytes: number): number {
  let spacing = 2 ** dimensionsOf(ranks);
  let joined = 1;
  const most = Math.floor(ranks / 2);
  const join = (): void => {
    joined *= 2;
    spacing /= 2;
  };
  while (Math.floor(chunkBytes / (partBytes * joined)) >= 2 && joined < most) join();
  for (let depth = bufferDepth; depth > 1 && joined < most; depth /= 2) join();
  return spacing;
}

/** Bits of a distance among so many ranks. */
function dimensionsOf(ranks: number): number {
  return ranks <= 1 ? 0 : 32 - Math.clz32(ranks - 1);
}

/** The tree of the blocks of a part, over distances behind their ranks; the root is distance 0. */
export function patOf(
  { ranks, dtype }: Pick<ChannelPlan, "ranks" | "dtype">,
  { chunk, length }: PlannedPart,
): Tree {
  const bytes = bytesOf(dtype);
  return patTree(ranks, patSpacing(ranks, chunk * bytes, length * bytes));
}

/** Trees by number of ranks and spacing. */
const trees = new Map<string, Tree>();
const maxTrees = 16;

/** The tree for blocks that are joined at a distance; kept, so that equal ones share their orders. */
function patTree(ranks: number, spacing: number): Tree {
  const key = `${ranks}/${spacing}`;
  const known = trees.get(key);
  if (known !== undefined) return known;
  const dimensions = dimensionsOf(ranks);
  const tree = {
    root: 0,
    children: Array.from({ length: ranks }, (_, distance) =>
      dimensionsBelow(distance, dimensions, Math.log2(spacing))
        .map((dimension) => distance + 2 ** dimension)
        .filter((child) => child < ranks),
    ),
  };
  const [oldest] = trees.keys();
  if (trees.size >= maxTrees && oldest !== undefined) trees.delete(oldest);
  trees.set(key, tree);
  return tree;
}

/**
 * Dimensions in which a distance has children, in the order of folding. Blocks of one message are 2^`inner` apart, and messages
 * go from the farthest to the nearest; then come the dimensions within a message, upwards, and last the next neighbour.
 */
function dimensionsBelow(distance: number, dimensions: number, inner: number): number[] {
  const lowest = distance === 0 ? dimensions : 31 - Math.clz32(distance & -distance);
  if (lowest < inner) return Array.from({ length: lowest }, (_, i) => lowest - 1 - i);
  const between = Array.from({ length: Math.max(0, inner - 1) }, (_, i) => inner - 1 - i);
  const first = Math.max(1, inner);
  const within = Array.from({ length: Math.max(0, lowest - first) }, (_, i) => first + i);
  return [...between, ...within, ...(lowest > 0 ? [0] : [])];
}

/** Orders over distances by tree, and of each block. */
const blockOrders = new WeakMap<Tree, FoldOrder[]>();

/** The order of each block. */
export function patOrders(tree: Tree): (block: number) => FoldOrder {
  const orders = blockOrders.get(tree) ?? [];
  blockOrders.set(tree, orders);
  const ranks = tree.children.length;
  return (block) => {
    orders[block] ??= orderBehind(treeOrder(tree), block, ranks);
    return orders[block];
  };
}

function orderBehind(order: FoldOrder, owner: number, ranks: number): FoldOrder {
  return order.map((each) =>
    typeof each === "number" ? (owner - each + ranks) % ranks : orderBehind(each, owner, ranks),
  );
}

/**
 * Distances in the order in which every rank handles them: children before parents, and messages between two ranks in the
 * order of their receives. Distances that are a fixed number apart follow each other, as many as a buffer has messages. So the
 * farthest of such a group goes first; of the last group, whose members depend on each other, lower dimensions.
 */
export function patSchedule(ranks: number): number[] {
  const dimensions = dimensionsOf(ranks);
  const groups = Math.min(bufferDepth, 2 ** dimensions);
  const apart = 2 ** dimensions / groups;
  const order = membersOrder(groups);
  const schedule: number[] = [];
  for (let place = apart - 1; place >= 0; place--) {
    for (const member of order) schedule.push(member * apart + place);
  }
  return schedule.filter((distance) => distance < ranks);
}

/** Distances below a power of two: lower dimensions first; within one, the places of the parents decide. */
function membersOrder(members: number): number[] {
  const fromRoot = [0];
  for (let bit = members / 2; bit >= 1; bit /= 2) {
    fromRoot.push(...fromRoot.map((parent) => parent + bit));
  }
  return fromRoot.reverse();
}
