/**
 * The shape of a collective's definition: what it means, apart from how it is done.
 *
 * A specification speaks of *blocks*, such as the part of an all-gather's output that one rank has sent. A rank's input and
 * output are some number of blocks each; the specification gives the input blocks that every output block holds afterwards. The
 * verifier judges each program against it. The naive oracle of the tests does not use it.
 */

/** Names of everything that a rank can post. */
export type CollectiveName =
  | "allReduce"
  | "reduce"
  | "broadcast"
  | "allGather"
  | "allGatherv"
  | "reduceScatter"
  | "reduceScatterv"
  | "allToAll"
  | "allToAllv"
  | "gather"
  | "scatter"
  | "barrier"
  | "send"
  | "recv"
  | "sendRecv"
  | "group"
  | "split"
  | "capture"
  | "replay";

/** One block of one rank's input. */
export interface InputBlock {
  readonly rank: number;
  readonly block: number;
}

/** The contract of every program of one collective. */
export interface Specification {
  readonly collective: CollectiveName;
  /** True when output blocks are folds by an operator; false: copies of bytes. */
  readonly reduces: boolean;
  /** True when one rank, the root, has other buffers than the rest: a call then takes `root`. */
  readonly rooted: boolean;
  /** True when no rank may leave before every rank has entered. */
  readonly synchronises: boolean;
  /** Blocks in a rank's input. */
  inBlocks(ranks: number, rank: number, root: number): number;
  /** Blocks in a rank's output; 0 where it has none. */
  outBlocks(ranks: number, rank: number, root: number): number;
  /** The input blocks that output block `block` of `rank` holds: one for a copy, one per rank for a fold. */
  expected(ranks: number, rank: number, block: number, root: number): readonly InputBlock[];
  /**
   * In place: the output block at the position of input block `block` of `rank`. `undefined` without an in-place form, or if no
   * output block has that position.
   */
  inPlace(ranks: number, rank: number, block: number, root: number): number | undefined;
}

/** The last result, for one number of ranks: by block, that block of every rank. */
let lastBlocks: { readonly ranks: number; readonly blocks: (readonly InputBlock[])[] } = {
  ranks: 0,
  blocks: [],
};

/** Block number `block` of every rank. Called once for every rank, so the last results are kept. */
export function everyRanksBlock(ranks: number, block: number): readonly InputBlock[] {
  if (lastBlocks.ranks !== ranks) lastBlocks = { ranks, blocks: [] };
  const known = lastBlocks.blocks[block];
  if (known !== undefined) return known;
  const blocks: InputBlock[] = [];
  for (let rank = 0; rank < ranks; rank++) blocks.push({ rank, block });
  lastBlocks.blocks[block] = blocks;
  return blocks;
}
