/**
 * Double binary tree all-reduce: two trees, each for half of the buffer; an inner rank of one is a leaf of the other.
 *
 * Steps 4(⌈log₂ n⌉ + m) with m pieces per tree (4m for two ranks), less `fewerSteps`; beyond 64 ranks, at most
 * that · elements sent per rank 2 · count (count for two ranks, 3/2 · count for three). Best for small and medium
 * buffers on many ranks. NCCL's Tree across nodes has these two trees.
 * A rank folds its own contribution into its first child's partial, then joins that with its second child's; the root
 * has one child.
 * Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL.
 */
import type { Algorithm } from "../algorithm.ts";
import type { Lane } from "../builder.ts";
import { doublings, powerBelow } from "../powers.ts";
import { input, output } from "../program.ts";

/** Pieces of each half that are under way at the same time. */
const pieces = 4;

/**
 * Steps saved, one digit for each number of ranks from 1 on. The trees are not full, and their pieces share the ports of a
 * rank, so the exact number has no closed form.
 */
const fewerSteps = "0886344435444444344545443543444335454445454545454444454445444444";

/** A rank's place in a tree; the parent of the root is `undefined`. */
interface Place {
  readonly parent: number | undefined;
  readonly children: readonly number[];
}

/** Folds up both trees, then distributes down both. */
export const doubleTreeAllReduce: Algorithm = {
  name: "double-tree",
  summary: "folds each half up a binary tree of its own, then distributes it down that tree",
  source: "Sanders, Speck and Träff 2009; NCCL's Tree",
  credits: () => 0,
  channels: 2,
  chunksPerBlock: () => 2 * pieces,
  cost: ({ ranks, count }) => {
    const most = ranks === 1 ? 0 : 4 * ((ranks === 2 ? 0 : doublings(ranks)) + pieces);
    const fewer = fewerSteps[ranks - 1];
    return {
      steps: most - Number(fewer ?? 0),
      sentElements: ranks === 1 ? 0 : (Math.min(ranks, 4) * count) / 2,
      bound: fewer === undefined,
    };
  },
  order: (folds, { ranks, chunk }) => {
    const tree = treeOf(ranks, chunk < pieces ? 0 : 1);
    const below = (rank: number): ReturnType<typeof folds.own> => {
      const [first, second] = tree(rank).children;
      if (first === undefined) return folds.own(rank);
      const held = folds.into(below(first), rank);
      return second === undefined ? held : folds.join(held, below(second));
    };
    let top = 0;
    for (let up = tree(top).parent; up !== undefined; up = tree(top).parent) top = up;
    return below(top);
  },
  write: (program) => {
    const { ranks } = program;
    for (const tree of [0, 1] as const) {
      program.everyRank((lane, rank) => {
        const place = treeOf(ranks, tree)(rank);
        const ownPieces = Array.from({ length: pieces }, (_, piece) => tree * pieces + piece);
        for (const piece of ownPieces) foldUp(lane, place, piece);
        for (const piece of ownPieces) distribute(lane, place, piece);
      }, tree);
    }
  },
};

/** Every rank's place in one of the trees. */
function treeOf(ranks: number, tree: 0 | 1): (rank: number) => Place {
  return (rank) => (tree === 0 ? firstTree(rank, ranks) : secondTree(rank, ranks));
}

function foldUp(lane: Lane, { parent, children }: Place, piece: number): void {
  let held = input(piece);
  if (children.length === 0) {
    if (parent === undefined) lane.copy(held, output(piece), { final: true });
    else lane.send(held, parent);
  }
  children.forEach((child, index) => {
    const last = index === children.length - 1;
    if (!last) lane.recvReduceCopy(child, held, output(piece));
    else if (parent === undefined) {
      lane.recvReduceCopy(child, held, output(piece), { final: true });
    } else lane.recvReduceSend(child, held, parent);
    held = output(piece);
  });
}

function distribute(lane: Lane, { parent, children }: Place, piece: number): void {
  const [first, second] = children;
  if (parent !== undefined) {
    if (first === undefined) lane.recv(parent, output(piece));
    else lane.recvCopySend(parent, output(piece), first);
  } else if (first !== undefined) lane.send(output(piece), first);
  if (second !== undefined) lane.send(output(piece), second);
}

/** Rank 0 on top with one child; below, a rank's lowest set bit is its height. */
function firstTree(rank: number, ranks: number): Place {
  if (rank === 0) {
    return { parent: undefined, children: ranks === 1 ? [] : [powerBelow(ranks - 1)] };
  }
  const bit = rank & -rank;
  const up = (rank ^ bit) | (2 * bit);
  const children: number[] = [];
  if (bit > 1) {
    children.push(rank - bit / 2);
    let step = bit / 2;
    while (step > 0 && rank + step >= ranks) step = Math.floor(step / 2);
    if (step > 0) children.push(rank + step);
  }
  return { parent: up < ranks ? up : rank ^ bit, children };
}

/** The first tree mirrored for an even number of ranks, shifted by one for an odd number. */
function secondTree(rank: number, ranks: number): Place {
  const even = ranks % 2 === 0;
  const turn = (other: number): number => (even ? ranks - 1 - other : (other + 1) % ranks);
  const { parent, children } = firstTree(even ? turn(rank) : (rank + ranks - 1) % ranks, ranks);
  return { parent: parent === undefined ? undefined : turn(parent), children: children.map(turn) };
}
