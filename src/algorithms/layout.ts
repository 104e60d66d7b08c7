/** The elements of a program's chunks: the layout of a call's buffers. */
import { overlapBytes, type RankCall, type Work } from "../api/backend-entry.ts";
import { specifications } from "../api/collectives/index.ts";
import type { DeviceBuffer, ReduceOp } from "../api/index.ts";
import {
  assertArgument,
  assertCollective,
  assertCounts,
  assertInteger,
  hasFields,
} from "./arguments.ts";
import { assertProgram, maxChunks, none, type Program } from "./program.ts";

/** First element and length of every chunk of one buffer. */
export interface ChunkTable {
  readonly offsets: Float64Array;
  readonly lengths: Float64Array;
}

/** Lengths and first elements of one buffer's blocks. */
export interface Blocks {
  readonly counts: readonly number[];
  readonly offsets: readonly number[];
}

/** The counts of a call. */
export interface CallShape {
  /** Elements as NCCL counts them; for an all-to-all the elements per peer. */
  readonly count: number;
  /** Blocks of every rank's buffers, by rank, where they differ in length. */
  readonly blocks?: { readonly in: readonly Blocks[]; readonly out: readonly Blocks[] } | undefined;
}

/** Chunk tables of `in` and `out` of every rank. Equal tables are shared. */
export interface Layout {
  readonly in: readonly ChunkTable[];
  readonly out: readonly ChunkTable[];
}

/** Most ranks: a layout lists the tables of all. */
const maxRanks = 2 ** 26;

/** The layout of a program for a call. */
export function layoutOf(program: Omit<Program, "code" | "starts">, shape: CallShape): Layout {
  const isFrame = hasFields(program, { ranks: "number", chunksPerBlock: "number" });
  assertArgument(isFrame, "layoutOf", "program", program, "a program, as buildProgram gives it");
  const { ranks, root, chunksPerBlock, collective } = program;
  assertCollective("layoutOf", collective);
  assertInteger("layoutOf", "program.ranks", ranks, 1, maxRanks);
  assertInteger("layoutOf", "program.root", root, none, ranks - 1);
  assertInteger("layoutOf", "program.chunksPerBlock", chunksPerBlock, 0, maxChunks);
  assertShape(shape);
  const spec = specifications[collective];
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  if (shape.blocks !== undefined) {
    const table = ({ counts, offsets }: Blocks): ChunkTable =>
      chunkTable(counts, offsets, chunksPerBlock);
    return { in: shape.blocks.in.map(table), out: shape.blocks.out.map(table) };
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

function assertShape(shape: CallShape): void {
  assertArgument(
    hasFields(shape, {}),
    "layoutOf",
    "shape",
    shape,
    "an object with a count, or with blocks",
  );
  const { blocks, count } = shape;
  if (blocks === undefined)
    assertInteger("layoutOf", "shape.count", count, 0, Number.MAX_SAFE_INTEGER);
  else {
    const isBlocks = Array.isArray(blocks?.in) && Array.isArray(blocks.out);
    assertArgument(isBlocks, "layoutOf", "shape.blocks", blocks, "blocks, as rowBlocks gives them");
  }
}

/** Consecutive blocks. */
export function packed(counts: readonly number[]): Blocks {
  assertCounts("packed", "counts", counts);
  return consecutive(counts);
}

function consecutive(counts: readonly number[]): Blocks {
  let at = 0;
  const offsets = counts.map((count) => {
    at += count;
    return at - count;
  });
  return { counts, offsets };
}

/** The blocks of a rank's input, for calls in which blocks differ in length. */
export function inputBlocks({ sendCounts, sendOffsets, send, count }: RankCall): Blocks {
  if (sendCounts === undefined) return consecutive(send === undefined ? [] : [count]);
  return { counts: sendCounts, offsets: sendOffsets ?? consecutive(sendCounts).offsets };
}

/** The blocks of a rank's output, for calls in which blocks differ in length. */
export function outputBlocks({ recvCounts, recvOffsets, recv, count }: RankCall): Blocks {
  if (recvCounts === undefined) return consecutive(recv === undefined ? [] : [count]);
  return { counts: recvCounts, offsets: recvOffsets ?? consecutive(recvCounts).offsets };
}

/** A block of an output, in elements of its buffer, and the input blocks that it is made of. */
export interface OutputBlock {
  readonly buffer: DeviceBuffer;
  /** Its first element. */
  readonly start: number;
  /** Its length, and that of each input block. */
  readonly count: number;
  /** True for a fold of the inputs, which are in the order of ranks; false for a copy of the only one. */
  readonly reduces: boolean;
  readonly inputs: readonly BlockInput[];
}

/** An input block, and the operator of its rank: of a pre-multiplied sum each rank has its own. */
export interface BlockInput {
  readonly buffer: DeviceBuffer;
  /** Its first element. */
  readonly start: number;
  readonly op: ReduceOp | undefined;
}

/**
 * The blocks that a call of all ranks, or an exchange of messages, writes: for backends with all ranks in one process. Blocks
 * without elements are left out. An output may lie on an input of the same work.
 *
 * @example
 * for (const { buffer, start, count, reduces, inputs } of outputsOf(work)) fold(inputs);
 */
export function outputsOf(work: Work): OutputBlock[] {
  const given = Object(work) as { readonly calls?: unknown; readonly transfers?: unknown };
  const isWork = Array.isArray(given.calls ?? given.transfers);
  assertArgument(isWork, "outputsOf", "work", work, "the work of a session");
  if ("transfers" in work) {
    return work.transfers.flatMap(({ send, recv }) => {
      if (send.send === undefined || recv.recv === undefined || recv.count === 0) return [];
      const inputs = [{ buffer: send.send, start: 0, op: undefined }];
      return { buffer: recv.recv, start: 0, count: recv.count, reduces: false, inputs };
    });
  }
  const { collective, calls } = work;
  assertCollective("outputsOf", collective);
  const { expected, outBlocks, reduces } = specifications[collective];
  const ranks = calls.length;
  return calls.flatMap(({ rank, root, count: each, recv, recvCounts, recvOffsets }) => {
    if (recv === undefined) return [];
    const outputs = Array.from({ length: outBlocks(ranks, rank, root) }, (_, block) => {
      const inputs = expected(ranks, rank, block, root).map((from): BlockInput => {
        const { send, sendOffsets, count, op } = calls[from.rank] as RankCall;
        const start = sendOffsets?.[from.block] ?? from.block * count;
        return { buffer: send as DeviceBuffer, start, op };
      });
      const start = recvOffsets?.[block] ?? block * each;
      return { buffer: recv, start, count: recvCounts?.[block] ?? each, reduces, inputs };
    });
    return outputs.filter(({ count }) => count > 0);
  });
}

/** True when the output of a call overlaps its input. */
export function overlaps({ send, recv }: RankCall): boolean {
  return send !== undefined && recv !== undefined && overlapBytes(send, recv) > 0;
}

/** The blocks of an all-to-allv: row i of `counts` has the elements that rank i sends to each rank. */
export function allToAllvBlocks(
  counts: readonly (readonly number[])[],
): NonNullable<CallShape["blocks"]> {
  assertArgument(Array.isArray(counts), "allToAllvBlocks", "counts", counts, "an array of rows");
  for (const row of counts) assertCounts("allToAllvBlocks", "counts", row, counts.length);
  return {
    in: counts.map(consecutive),
    out: counts.map((_, rank) => consecutive(counts.map((row) => row[rank] as number))),
  };
}

/** The blocks of another v-form or a rooted collective: `counts` holds one length a rank. */
export function rowBlocks(
  program: Program,
  counts: readonly number[],
): NonNullable<CallShape["blocks"]> {
  assertProgram("rowBlocks", program);
  const { ranks, root, collective } = program;
  assertCounts("rowBlocks", "counts", counts, ranks);
  const spec = specifications[collective];
  const side = (blocksOf: (ranks: number, rank: number, root: number) => number): Blocks[] =>
    counts.map((count, rank) => {
      const blocks = blocksOf(ranks, rank, root);
      if (blocks === 0) return consecutive([]);
      return consecutive(blocks === 1 && ranks > 1 ? [count] : counts);
    });
  return { in: side(spec.inBlocks), out: side(spec.outBlocks) };
}

function evenTable(blocks: number, count: number, chunksPerBlock: number): ChunkTable {
  const counts = new Array<number>(blocks).fill(count);
  const offsets = counts.map((_, block) => block * count);
  return chunkTable(counts, offsets, chunksPerBlock);
}

/** Cuts each block into chunks of lengths that differ by at most one, longer ones first. */
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

/** For every rank: the input chunk under each output chunk of a call in place; -1 where there is none. */
export function coveredInputs(program: Program): Int32Array[] {
  const { collective, ranks, root, chunksPerBlock } = program;
  const spec = specifications[collective];
  return Array.from({ length: ranks }, (_, rank) => {
    const covered = new Int32Array(spec.outBlocks(ranks, rank, root) * chunksPerBlock).fill(none);
    const blocks = spec.inBlocks(ranks, rank, root);
    for (let block = 0; block < blocks; block++) {
      const over = spec.inPlace(ranks, rank, block, root);
      if (over === undefined) continue;
      for (let i = 0; i < chunksPerBlock; i++) {
        covered[over * chunksPerBlock + i] = block * chunksPerBlock + i;
      }
    }
    return covered;
  });
}
