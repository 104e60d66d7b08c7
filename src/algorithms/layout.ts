/** Which elements a program's chunks are: the layout of a call's buffers. */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import { specifications } from "../api/collectives/index.ts";
import type { Program } from "./program.ts";

/** First element and length of every chunk of one buffer. */
export interface ChunkTable {
  readonly offsets: Float64Array;
  readonly lengths: Float64Array;
}

/** The counts of a call. */
export interface CallShape {
  /** Elements as NCCL counts them; for an all-to-all the elements per peer. */
  readonly count: number;
  /** For v-forms, by rank: lengths and places of the blocks it sends and receives. */
  readonly blocks?: {
    readonly sendCounts: readonly (readonly number[])[];
    readonly sendOffsets: readonly (readonly number[])[];
    readonly recvCounts: readonly (readonly number[])[];
    readonly recvOffsets: readonly (readonly number[])[];
  };
}

/** Chunk tables of `in` and `out` of every rank. Ranks whose tables are equal share one. */
export interface Layout {
  readonly in: readonly ChunkTable[];
  readonly out: readonly ChunkTable[];
}

/** The layout of a program for a call. */
export function layoutOf(program: Program, shape: CallShape): Layout {
  const { ranks, root, chunksPerBlock, collective } = program;
  const spec = specifications[collective];
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  const { blocks } = shape;
  if (blocks !== undefined) {
    const table = (
      counts: readonly (readonly number[])[],
      offsets: readonly (readonly number[])[],
    ) =>
      everyRank.map((rank) => chunkTable(counts[rank] ?? [], offsets[rank] ?? [], chunksPerBlock));
    return {
      in: table(blocks.sendCounts, blocks.sendOffsets),
      out: table(blocks.recvCounts, blocks.recvOffsets),
    };
  }
  const tables = new Map<number, ChunkTable>();
  const even = (blockCount: number): ChunkTable => {
    const known = tables.get(blockCount) ?? evenTable(blockCount, shape.count, chunksPerBlock);
    tables.set(blockCount, known);
    return known;
  };
  return {
    in: everyRank.map((rank) => even(spec.inBlocks(ranks, rank, root))),
    out: everyRank.map((rank) => even(spec.outBlocks(ranks, rank, root))),
  };
}

/** Counts of an all-to-all as the blocks of an all-to-allv, packed one after another. */
export function packedBlocks(
  counts: readonly (readonly number[])[],
): NonNullable<CallShape["blocks"]> {
  const recvCounts = counts.map((_, rank) => counts.map((row) => row[rank] ?? 0));
  const offsets = (row: readonly number[]): number[] => {
    let at = 0;
    return row.map((count) => {
      at += count;
      return at - count;
    });
  };
  return {
    sendCounts: counts,
    sendOffsets: counts.map(offsets),
    recvCounts,
    recvOffsets: recvCounts.map(offsets),
  };
}

/** True for collectives whose blocks have lengths of their own. */
export function isVariable(collective: SpecifiedCollective): boolean {
  return collective === "allToAllv";
}

function evenTable(blocks: number, count: number, chunksPerBlock: number): ChunkTable {
  const counts = new Array<number>(blocks).fill(count);
  const offsets = counts.map((_, block) => block * count);
  return chunkTable(counts, offsets, chunksPerBlock);
}

/** Cuts each block into chunks whose lengths differ by at most one, longer ones first. */
function chunkTable(
  counts: readonly number[],
  offsets: readonly number[],
  chunksPerBlock: number,
): ChunkTable {
  const table = {
    offsets: new Float64Array(counts.length * chunksPerBlock),
    lengths: new Float64Array(counts.length * chunksPerBlock),
  };
  counts.forEach((count, block) => {
    const least = Math.floor(count / chunksPerBlock);
    const longer = count % chunksPerBlock;
    let at = offsets[block] ?? 0;
    for (let i = 0; i < chunksPerBlock; i++) {
      const chunk = block * chunksPerBlock + i;
      const length = least + (i < longer ? 1 : 0);
      table.offsets[chunk] = at;
      table.lengths[chunk] = length;
      at += length;
    }
  });
  return table;
}
