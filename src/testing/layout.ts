/** The lengths of each rank's buffers in a call, the elements that it sends and receives, and the offsets of in-place calls. */
import {
  blockLengths,
  type CallCounts,
  inPlaceOffset,
  takesArgument,
} from "../api/collectives/call-layout.ts";
import type { BlockOrder, ProgramDataCall } from "./program.ts";

/** A collective call with data. */
export type CollectiveDataCall = Exclude<ProgramDataCall, { readonly kind: "sendRecv" | "pair" }>;

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
  if (call.kind === "sendRecv") {
    return { send: whole(call.count), recv: whole(call.count), inPlaceAt: undefined };
  }
  if (call.kind === "pair") {
    if (rank === call.from) return { ...none, send: whole(call.count) };
    return rank === call.to ? { ...none, recv: whole(call.count) } : none;
  }
  const counts = countsOf(call, size);
  const lengths = blockLengths(call.kind, counts, rank);
  const range = (buffer: "send" | "recv"): Range | undefined =>
    lengths[buffer].length === 0
      ? undefined
      : blocksOf(lengths[buffer], hasOffsets(call, buffer) ? "reversed" : "packed");
  const [send, recv] = [range("send"), range("recv")];
  const offsets = { send: offsetsOf(send), recv: offsetsOf(recv) };
  const inPlaceAt = inPlaceOffset(call.kind, counts, rank, offsets);
  const longer = call.kind === "allToAllv" && call.recv === "longer" ? 3 : 0;
  return { send, recv: recv && { ...recv, length: recv.length + longer }, inPlaceAt };
}

/** The counts of a call of all ranks. */
function countsOf(call: CollectiveDataCall, ranks: number): CallCounts {
  const root = "root" in call ? call.root : -1;
  if (call.kind === "allToAllv") return { ranks, root, count: 0, traffic: call.counts };
  if ("counts" in call) return { ranks, root, count: 0, counts: call.counts };
  return { ranks, root, count: call.count };
}

/** True when a rank's call gives offsets of the blocks of a buffer. */
export function hasOffsets(call: CollectiveDataCall, buffer: "send" | "recv"): boolean {
  if (!("order" in call) || call.order !== "reversed") return false;
  if (call.kind === "allToAllv" && buffer === "recv" && call.give !== "both") return false;
  return takesArgument(call.kind, `${buffer}Offsets`);
}

/** Where the blocks of a range start. */
export function offsetsOf(range: Range | undefined): number[] {
  return range?.blocks.map(({ offset }) => offset) ?? [];
}

/** Blocks in a range: one after another, or the last one first with a gap of one element before each. */
function blocksOf(counts: readonly number[], order: BlockOrder): Range {
  const blocks = counts.map((count) => ({ offset: 0, count }));
  const gap = order === "reversed" ? 1 : 0;
  let at = 0;
  for (const block of order === "reversed" ? blocks.toReversed() : blocks) {
    block.offset = at + gap;
    at = block.offset + block.count;
  }
  return { length: at, blocks };
}

function whole(count = 0): Range {
  return { length: count, blocks: [{ offset: 0, count }] };
}
