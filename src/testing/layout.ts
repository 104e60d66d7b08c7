/** The lengths of each rank's buffers in a call, the elements that it sends and receives, and the offsets of in-place calls. */
import type { BlockOrder, ProgramDataCall } from "./program.ts";

/** Elements `offset` to `offset + count` of a range. */
export interface Block {
  readonly offset: number;
  readonly count: number;
}

/** A range of memory, and the elements of it that a call reads or writes, by block. */
export interface Range {
  readonly length: number;
  readonly blocks: readonly Block[];
}

/** One rank's memory of one call. */
export interface Layout {
  readonly send: Range | undefined;
  readonly recv: Range | undefined;
  /** Where `send` starts, counted from the start of `recv`, when the call is in place; `undefined`: no such form. */
  readonly inPlaceAt: number | undefined;
}

const none: Layout = { send: undefined, recv: undefined, inPlaceAt: undefined };

/** The memory that `rank` needs for a call among `size` ranks. */
export function layoutOf(call: ProgramDataCall, size: number, rank: number): Layout {
  switch (call.kind) {
    case "allReduce":
      return { send: whole(call.count), recv: whole(call.count), inPlaceAt: 0 };
    case "reduce":
    case "broadcast": {
      const one = whole(call.count);
      if (rank === call.root) return { send: one, recv: one, inPlaceAt: 0 };
      return call.kind === "reduce" ? { ...none, send: one } : { ...none, recv: one };
    }
    case "allGather":
    case "allGatherv": {
      const counts = call.kind === "allGather" ? even(call.count, size) : call.counts;
      const recv = blocksOf(counts, call.kind === "allGather" ? "packed" : call.order);
      return { send: whole(counts[rank]), recv, inPlaceAt: recv.blocks[rank]?.offset };
    }
    case "reduceScatter":
    case "reduceScatterv": {
      const counts = call.kind === "reduceScatter" ? even(call.count, size) : call.counts;
      return outOf(blocksOf(counts, "packed"), counts, rank);
    }
    case "gather": {
      if (rank !== call.root) return { ...none, send: whole(call.counts[rank]) };
      const recv = blocksOf(call.counts, call.order);
      return { send: whole(call.counts[rank]), recv, inPlaceAt: recv.blocks[rank]?.offset };
    }
    case "scatter":
      if (rank !== call.root) return { ...none, recv: whole(call.counts[rank]) };
      return outOf(blocksOf(call.counts, call.order), call.counts, rank);
    case "allToAll": {
      const all = blocksOf(even(call.count, size), "packed");
      return { send: all, recv: all, inPlaceAt: undefined };
    }
    case "allToAllv": {
      const send = blocksOf(call.counts[rank] ?? [], call.order);
      const column = call.counts.map((row) => row[rank] ?? 0);
      const recv = blocksOf(column, call.give === "both" ? call.order : "packed");
      const longer = call.recv === "longer" ? 3 : 0;
      return { send, recv: { ...recv, length: recv.length + longer }, inPlaceAt: undefined };
    }
    case "sendRecv":
      return { send: whole(call.count), recv: whole(call.count), inPlaceAt: undefined };
    case "pair":
      if (rank === call.from) return { ...none, send: whole(call.count) };
      return rank === call.to ? { ...none, recv: whole(call.count) } : none;
  }
}

/** Blocks in a range: one after another, or the last one first with a gap of one element before each. */
function blocksOf(counts: readonly number[], order: BlockOrder | "even"): Range {
  const blocks = counts.map((count) => ({ offset: 0, count }));
  const gap = order === "reversed" ? 1 : 0;
  let at = 0;
  for (const block of order === "reversed" ? blocks.toReversed() : blocks) {
    block.offset = at + gap;
    at = block.offset + block.count;
  }
  return { length: at, blocks };
}

/** A rank that reads a range of blocks and writes its own one. */
function outOf(send: Range, counts: readonly number[], rank: number): Layout {
  return { send, recv: whole(counts[rank]), inPlaceAt: -(send.blocks[rank]?.offset ?? 0) };
}

function whole(count = 0): Range {
  return { length: count, blocks: [{ offset: 0, count }] };
}

function even(count: number, size: number): number[] {
  return new Array<number>(size).fill(count);
}
