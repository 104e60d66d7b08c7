/** Which elements the chunks of a plan's program are: one chunk for each piece of a block, block after block. */
import { specifications } from "../../api/collectives/index.ts";
import type { ChunkTable, Layout } from "../layout.ts";
import type { NcclPlan } from "./plan-shape.ts";

/** Pieces that each block is cut into. */
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

/** All blocks are cut alike. */
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
