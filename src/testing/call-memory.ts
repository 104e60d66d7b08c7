/**
 * The memory of one call on one rank: lengths and blocks of its buffers, between guards that no call may touch.
 *
 * One class serves buffers and TypedArrays, in place or apart, so that a program reads the same for all of them.
 */
import {
  blockLengths,
  type CallCounts,
  inPlaceOffset,
  takesArgument,
} from "../api/collectives/call-layout.ts";
import { asDType, bytesOf, type Communicator, type Data, dtypeInfo } from "../api/index.ts";
import type { BlockOrder, ProgramDataCall } from "./program.ts";

/** A collective call with data. */
export type CollectiveDataCall = Exclude<ProgramDataCall, { readonly kind: "sendRecv" | "pair" }>;

/** Elements `offset` to `offset + count` of a range. */
interface Block {
  readonly offset: number;
  readonly count: number;
}

/** A range of memory, and the elements of it that a call reads or writes, by block. */
interface Range {
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

/** Start of each block of a range. */
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

/** Every byte that no call may write. */
const guardByte = 0xa5;

/** One allocation and its contents before a call. */
interface Arena {
  readonly data: Data;
  readonly before: Uint8Array;
}

/** Position of a range. */
interface Place {
  readonly arena: Arena;
  /** First element. */
  readonly at: number;
  readonly range: Range;
}

/** Ranges of one call between guards. */
export class CallMemory {
  readonly send: Data | undefined;
  readonly recv: Data | undefined;
  readonly #call: ProgramDataCall;
  readonly #arenas: Arena[] = [];
  readonly #send: Place | undefined;
  readonly #recv: Place | undefined;

  constructor(comm: Communicator, call: ProgramDataCall, layout: Layout, inPlace: boolean) {
    this.#call = call;
    const { send, recv, inPlaceAt = 0 } = layout;
    const { lead, tail, form } = call.placement;
    const arena = (elements: number): Arena => {
      const created = arenaOf(comm, call, lead + elements + tail);
      this.#arenas.push(created);
      return created;
    };
    if (send !== undefined && recv !== undefined && (inPlace || form === "oneBlock")) {
      const recvAt = inPlace ? Math.max(0, -inPlaceAt) : send.length + lead;
      const sendAt = inPlace ? recvAt + inPlaceAt : 0;
      const both = arena(Math.max(sendAt + send.length, recvAt + recv.length));
      this.#send = { arena: both, at: lead + sendAt, range: send };
      this.#recv = { arena: both, at: lead + recvAt, range: recv };
    } else {
      if (send !== undefined) this.#send = { arena: arena(send.length), at: lead, range: send };
      if (recv !== undefined) this.#recv = { arena: arena(recv.length), at: lead, range: recv };
    }
    this.send = this.#send && part(call, this.#send);
    this.recv = this.#recv && part(call, this.#recv);
  }

  /** Guards everywhere but for these elements in the blocks of `send`. */
  refill(content: Uint8Array): void {
    const width = bytesOf(this.#call.dtype);
    for (const { before } of this.#arenas) before.fill(guardByte);
    let from = 0;
    for (const { offset, count } of this.#send?.range.blocks ?? []) {
      const bytes = content.subarray(from, from + count * width);
      this.#send?.arena.before.set(bytes, (this.#send.at + offset) * width);
      from += bytes.length;
    }
    for (const { data, before } of this.#arenas) write(data, before);
  }

  /** The received blocks one after another, after a check that all other bytes are unchanged. */
  async received(): Promise<Uint8Array> {
    const width = bytesOf(this.#call.dtype);
    let found = new Uint8Array(0);
    for (const { data, before } of this.#arenas) {
      const now = await hostBytes(data);
      if (data === this.#recv?.arena.data) {
        found = take(now, width, this.#recv);
        for (const { offset, count } of this.#recv.range.blocks) {
          const at = (this.#recv.at + offset) * width;
          now.set(before.subarray(at, at + count * width), at);
        }
      }
      const at = firstUnequal(now, before);
      if (at < 0) continue;
      throw new Error(`${this.#call.kind}: byte ${at} was written, which is no part of recv`);
    }
    return found;
  }

  /** Frees the memory. */
  dispose(): void {
    for (const { data } of this.#arenas) if ("toHost" in data) data.dispose();
  }
}

/** Index of the first byte that differs from the other's; -1 if none does. */
function firstUnequal(bytes: Uint8Array, others: Uint8Array): number {
  for (let at = 0; at < bytes.length; at++) if (bytes[at] !== others[at]) return at;
  return -1;
}

/** A copy of the bytes behind a buffer or array. */
export async function hostBytes(data: Data): Promise<Uint8Array> {
  const view = "array" in data ? data.array : "toHost" in data ? await data.toHost() : data;
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice();
}

function take(bytes: Uint8Array, width: number, { at, range }: Place): Uint8Array<ArrayBuffer> {
  const total = range.blocks.reduce((sum, { count }) => sum + count, 0);
  const taken = new Uint8Array(total * width);
  let to = 0;
  for (const { offset, count } of range.blocks) {
    const from = (at + offset) * width;
    taken.set(bytes.subarray(from, from + count * width), to);
    to += count * width;
  }
  return taken;
}

function arenaOf(comm: Communicator, call: ProgramDataCall, length: number): Arena {
  const { dtype, placement } = call;
  const before = new Uint8Array(length * bytesOf(dtype));
  const symmetric = placement.symmetric === true && comm.capabilities.symmetricMemory;
  if (symmetric || !placement.host || !comm.capabilities.hostArrays) {
    return { data: comm.alloc(dtype, length, { symmetric }), before };
  }
  const memory = new ArrayBuffer(before.length);
  return { data: asDType(dtypeInfo[dtype].view(memory, 0, length), dtype) as Data, before };
}

function part({ dtype }: ProgramDataCall, { arena, at, range }: Place): Data {
  const { data } = arena;
  const { length } = range;
  if ("toHost" in data) return data.subarray(at, at + length);
  const { buffer } = "array" in data ? data.array : data;
  const view = dtypeInfo[dtype].view(buffer, at * bytesOf(dtype), length);
  return (dtypeInfo[dtype].bits ? asDType(view, dtype) : view) as Data;
}

function write(data: Data, bytes: Uint8Array): void {
  if ("toHost" in data) {
    const array = dtypeInfo[data.dtype].view(bytes.slice().buffer, 0, data.length);
    data.copyFrom(array);
    return;
  }
  const { buffer } = "array" in data ? data.array : data;
  new Uint8Array(buffer).set(bytes);
}
