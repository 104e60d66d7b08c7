/**
 * The shape of a collective's definition: what it means, apart from how it is done.
 *
 * A specification speaks of *blocks*. A rank's `in` and `out` each hold some number of equal-role blocks; the
 * specification says which input blocks every output block must hold afterwards. The verifier judges each program
 * against it, and the naive oracle of the tests is a second reading of the same text.
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
  /** True when ranks may disagree on `root`-dependent buffers, so a root must be given. */
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
