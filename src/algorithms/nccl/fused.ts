/**
 * A plan in the form that executors run: its folds, and the layout of their chunks.
 *
 * The folds follow directly from the plan's pieces. `fuse` reads the same list off the plan's program; the tests prove
 * the two equal by association. Every piece of a block is one chunk, block after block.
 */
import { specifications } from "../../api/collectives/index.ts";
import type { FusedFold, FusedPlan, Operand, Place } from "../fuse.ts";
import type { ChunkTable, Layout } from "../layout.ts";
import type { NcclPlan, Piece } from "./plan-types.ts";

/** The folds of a plan, one for each piece. */
export function ncclFused(plan: NcclPlan): FusedPlan {
  const perBlock = piecesPerBlock(plan);
  const groups = plan.pieces.map((piece, i) => [fusedFold(plan, piece, i % perBlock, perBlock)]);
  // In place, a fold reads no input that another fold's output overwrites.
  return { groups, inPlaceSafe: true, independent: true };
}

function fusedFold(plan: NcclPlan, piece: Piece, index: number, perBlock: number): FusedFold {
  const { collective, accumulator } = plan;
  const { reduces } = specifications[collective];
  const { block, order } = piece;
  const input = (collective === "reduceScatter" ? block * perBlock : 0) + index;
  // Symmetric kernels exchange raw values, which count as partials of one rank.
  const later = accumulator === "float32" ? "partial" : "contribution";
  return {
    operands: order.map((rank, i): Operand => {
      return { kind: i === 0 ? "contribution" : later, place: { rank, chunk: input } };
    }),
    final: reduces,
    reduces,
    targets: targetsOf(plan, block, index, perBlock),
  };
}

/** The output chunks of a piece. */
function targetsOf(plan: NcclPlan, block: number, index: number, perBlock: number): Place[] {
  const { collective, ranks, root } = plan;
  if (collective === "reduceScatter") return [{ rank: block, chunk: index }];
  if (collective === "reduce") return [{ rank: root, chunk: index }];
  const chunk = (collective === "allGather" ? block * perBlock : 0) + index;
  return Array.from({ length: ranks }, (_, rank) => ({ rank, chunk }));
}

/** Number of pieces of each block. */
export function piecesPerBlock({ pieces, collective, ranks }: NcclPlan): number {
  const blocks = collective === "reduceScatter" || collective === "allGather" ? ranks : 1;
  return pieces.length / blocks;
}

/** Chunk tables of every rank's buffers; equal ones are shared. */
export function ncclLayout(plan: NcclPlan): Layout {
  const { collective, ranks, root } = plan;
  const spec = specifications[collective];
  const tables = new Map<number, ChunkTable>();
  const table = (blocks: number): ChunkTable => {
    const known = tables.get(blocks) ?? blockTable(plan, blocks);
    tables.set(blocks, known);
    return known;
  };
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  return {
    in: everyRank.map((rank) => table(spec.inBlocks(ranks, rank, root))),
    out: everyRank.map((rank) => table(spec.outBlocks(ranks, rank, root))),
  };
}

/** The table of equally cut blocks. */
function blockTable(plan: NcclPlan, blocks: number): ChunkTable {
  const { pieces, count } = plan;
  const perBlock = piecesPerBlock(plan);
  const offsets = new Float64Array(blocks * perBlock);
  const lengths = new Float64Array(blocks * perBlock);
  for (let block = 0, chunk = 0; block < blocks; block++) {
    for (let i = 0; i < perBlock; i++, chunk++) {
      offsets[chunk] = block * count + (pieces[i]?.offset ?? 0);
      lengths[chunk] = pieces[i]?.length ?? 0;
    }
  }
  return { offsets, lengths };
}
