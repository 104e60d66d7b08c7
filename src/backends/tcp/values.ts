/**
 * The values of a lane's moves: chunks of a rank's buffers, and blocks of messages, folded by the plan of the call.
 *
 * A rank's own input is a contribution, everything else a partial: a message, an output, and scratch. A contribution that is sent
 * or stored becomes a partial. A lone contribution without arithmetic keeps its bytes.
 */
import {
  type Fold,
  type Lanes,
  lanesOf,
  lanesPerElement,
} from "../../algorithms/arithmetic/index.ts";
import type { HostMemory } from "../../algorithms/host-memory.ts";
import {
  type ChunkTable,
  type PlanFolds,
  type Program,
  takeSeparate,
} from "../../algorithms/index.ts";
import { bufferOf, chunkOf, none, type Ref } from "../../algorithms/program.ts";
import { bytesOf, type DType } from "../../api/index.ts";
import type { MessageBlock, MessageBlocks } from "./message-blocks.ts";
import { type Chunks, type Move, widestMove } from "./rank-program.ts";

/** A range of a rank's memory. */
export interface RankMemory {
  readonly memory: HostMemory;
  readonly byteOffset: number;
}

/** A call of this rank: its data, and its arithmetic. */
export interface CallData {
  readonly program: Program;
  /** `undefined` for a call without data. */
  readonly dtype: DType | undefined;
  readonly tables: { readonly in: ChunkTable; readonly out: ChunkTable };
  readonly input: RankMemory | undefined;
  readonly output: RankMemory | undefined;
  /** Absent for copies. */
  readonly folds: PlanFolds | undefined;
  readonly slices: Slices;
  /** The input is a copy that was made for this call. */
  readonly isCopied: boolean;
}

/** A part of a chunk that one round moves. */
interface Segment {
  /** Memory of its buffer, and its first element there. */
  readonly lanes: Lanes;
  readonly at: number;
  readonly count: number;
}

/** The slices that a call is cut into: the same on all ranks. */
export interface Slices {
  /** Elements of a chunk that a round moves: messages have a limited length, and rounds overlap. */
  readonly elements: number;
  /** Messages of a flow that may wait at the receiver. Programs need one; short messages have more. */
  readonly credits: number;
  /** Lanes that are under way at once, about: a lane that waits for a message leaves the processor to others. */
  readonly lanesAtOnce: number;
}

/** The slices of a call whose blocks have `count` elements on every rank, or `undefined` where their lengths vary. */
export function slicesOf(
  program: Program,
  dtype: DType | undefined,
  count: number | undefined,
): Slices {
  if (dtype === undefined) return { elements: 1, credits: leastCredits, lanesAtOnce: mostLanes };
  const chunk = count === undefined ? undefined : Math.ceil(count / program.chunksPerBlock);
  const elementBytes = bytesOf(dtype) * widestMove(program);
  const fair = chunk === undefined ? 0 : (chunk * elementBytes) / mostLanes;
  const sliceBytes = clamp(fair, leastSliceBytes, mostSliceBytes);
  const elements = Math.max(leastElements, Math.floor(sliceBytes / elementBytes));
  const bytes = Math.max(1, Math.min(elements, chunk ?? Infinity) * elementBytes);
  const credits = clamp(Math.floor(waitingBytes / bytes), leastCredits, mostCredits);
  return { elements, credits, lanesAtOnce: clamp(Math.floor(openBytes / bytes), 1, mostLanes) };
}

function clamp(value: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, value));
}

/** Bounds of the bytes of a message, about. Between them a long step is cut into as many slices as lanes are under way. */
const [leastSliceBytes, mostSliceBytes] = [128 * 2 ** 10, 512 * 2 ** 10];
const leastElements = 256;

/** About as many bytes wait at the receiver of a flow, and are in one message of each lane under way together. */
const [waitingBytes, openBytes] = [512 * 2 ** 10, 2 * 2 ** 20];
const [leastCredits, mostCredits] = [2, 64];
const mostLanes = 8;

/** The moves of one round of a call on this rank's data. */
export class RoundData {
  readonly #call: CallData;
  readonly #blocks: MessageBlocks;
  /** First element of the round in each chunk, and the number of elements. */
  readonly #first: number;
  readonly #slice: number;
  readonly #bytes: number;
  readonly #width: 1 | 2;
  /** Memory of scratch, by chunk. */
  readonly #scratch = new Map<number, MessageBlock>();
  /** Operands of a fold that rounds once, in place of scratch: by the first chunk of the move that writes them. */
  readonly #operands = new Map<number, readonly MessageBlock[]>();

  constructor(call: CallData, round: number, slice: number, blocks: MessageBlocks) {
    this.#call = call;
    this.#blocks = blocks;
    this.#first = round * slice;
    this.#slice = slice;
    this.#bytes = call.dtype === undefined ? 0 : bytesOf(call.dtype);
    this.#width = call.dtype === undefined ? 1 : lanesPerElement(call.dtype);
  }

  /** True where a move has elements in this round. The first round has all moves. */
  has(move: Move): boolean {
    return this.#first === 0 || chunksOf(move).some((ref) => this.#length(ref) > this.#first);
  }

  /** Bytes of the message of a move. */
  bytesOf(move: Move): number {
    let elements = 0;
    for (const ref of chunksOf(move)) elements += this.#count(ref);
    return elements * this.#bytes;
  }

  /** Computes a move, stores its value where the move writes it, and returns it where it is to be sent. Takes over `received`. */
  perform(move: Move, received: MessageBlock | undefined): MessageBlock | undefined {
    const { read, other, final } = move;
    if (this.#isChained(move, received)) return this.#chain(move, received);
    const isAlone = received === undefined && other === undefined && isInput(read);
    const block = received ?? this.#blocks.take(this.bytesOf(move));
    let before = received === undefined ? 0 : 1;
    // A contribution is folded into the partial.
    const isReversed = isInput(read) && other !== undefined && !isInput(other);
    for (const chunks of isReversed ? [other, read] : [read, other]) {
      if (chunks !== undefined) this.#fold(block, chunks, before++);
    }
    // A contribution that is complete by itself keeps its bytes.
    if (final && !(isAlone && this.#call.folds?.fold.scales !== true)) this.#finish(block);
    return this.#deliver(move, block);
  }

  /** Stores the value of a move where it has a place for it, and returns it where it is to be sent. */
  #deliver({ write, to }: Move, block: MessageBlock): MessageBlock | undefined {
    if (write !== undefined) this.#store(block, write);
    if (to !== none) return block;
    this.#blocks.give(block);
    return undefined;
  }

  /** True for a move of a fold that rounds once, at its end: scratch then holds the operands so far. */
  #isChained({ read, other, write }: Move, received: MessageBlock | undefined): boolean {
    if (this.#call.folds?.accumulator !== "float32") return false;
    const isFold = read !== undefined && (other !== undefined || received !== undefined);
    return isFold || (write !== undefined && isScratch(write));
  }

  /** Joins the operands of a move; the last one folds them all. */
  #chain(move: Move, received: MessageBlock | undefined): MessageBlock | undefined {
    const { read, other, write, final } = move;
    const operands = [read, other].flatMap((chunks) =>
      chunks === undefined ? [] : this.#takeOperands(chunks),
    );
    if (received !== undefined) operands.push(received);
    if (!final) {
      this.#operands.set(firstOf(write), operands);
      return undefined;
    }
    const { folds } = this.#call;
    const block = this.#blocks.take(this.bytesOf(move));
    const lanes = (operand: MessageBlock): Lanes => this.#lanesOf(operand);
    const count = block.bytes.byteLength / this.#bytes;
    const starts = operands.map(() => 0);
    folds?.fold.chain(lanes(block), 0, operands.map(lanes), starts, count);
    this.#finish(block);
    for (const operand of operands) this.#blocks.give(operand);
    return this.#deliver(move, block);
  }

  /** The operands in scratch chunks, which have none from now on; or a copy of chunks of a buffer. */
  #takeOperands(chunks: Chunks): readonly MessageBlock[] {
    if (isScratch(chunks)) {
      const first = firstOf(chunks);
      const operands = this.#operands.get(first) ?? [];
      this.#operands.delete(first);
      return operands;
    }
    let elements = 0;
    for (const ref of chunks) elements += this.#count(ref);
    const block = this.#blocks.take(elements * this.#bytes);
    this.#load(block, chunks);
    return [block];
  }

  /** Copies chunks into a block. */
  #load(block: MessageBlock, chunks: Chunks): void {
    const values = this.#lanesOf(block);
    let at = 0;
    for (const ref of chunks) {
      const { lanes, at: sourceAt, count } = this.#segment(ref);
      if (count === 0) continue;
      values.set(this.#slices(lanes, sourceAt, count), at * this.#width);
      at += count;
    }
  }

  /** Folds chunks into a block with `before` operands. */
  #fold(block: MessageBlock, chunks: Chunks, before: number): void {
    const { folds } = this.#call;
    if (folds === undefined) {
      this.#load(block, chunks);
      return;
    }
    const acc = this.#lanesOf(block);
    const isContribution = isInput(chunks);
    let at = 0;
    for (const ref of chunks) {
      const { lanes: source, at: sourceAt, count } = this.#segment(ref);
      if (count === 0) continue;
      const range = { acc, at, source, sourceAt, count, inChunk: this.#first };
      this.#foldBoth(folds, range, { before, isContribution });
      at += count;
    }
  }

  /** Folds a range; where the rounding depends on the position, both ways. */
  #foldBoth(
    { fold, separate }: PlanFolds,
    range: FoldRange,
    how: { readonly before: number; readonly isContribution: boolean },
  ): void {
    if (separate === undefined) {
      foldRange(fold, range, how);
      return;
    }
    const { acc, at, count, inChunk } = range;
    const second = this.#blocks.take(count * this.#bytes);
    const other = this.#lanesOf(second);
    other.set(this.#slices(acc, at, count));
    foldRange(fold, range, how);
    foldRange(separate, { ...range, acc: other, at: 0 }, how);
    takeSeparate(this.#slices(acc, at, count), other, count, this.#bytes, inChunk);
    this.#blocks.give(second);
  }

  #finish(block: MessageBlock): void {
    const count = block.bytes.byteLength / this.#bytes;
    this.#call.folds?.fold.finish(this.#lanesOf(block), 0, count);
  }

  #store(block: MessageBlock, chunks: Chunks): void {
    const values = this.#lanesOf(block);
    let at = 0;
    for (const ref of chunks) {
      const { lanes, at: targetAt, count } = this.#segment(ref);
      if (count === 0) continue;
      lanes.set(this.#slices(values, at, count), targetAt * this.#width);
      at += count;
    }
  }

  #lanesOf({ memory, bytes }: MessageBlock): Lanes {
    return lanesOf(this.#call.dtype as DType, memory, bytes.byteOffset, bytes.byteLength);
  }

  #slices(lanes: Lanes, at: number, count: number): Lanes {
    return lanes.subarray(at * this.#width, (at + count) * this.#width);
  }

  /** The elements of this round in a chunk. An empty block may lie behind the end of its buffer. */
  #segment(ref: Ref): Segment {
    const count = this.#count(ref);
    if (bufferOf(ref) === 2) {
      return { lanes: this.#lanesOf(this.#scratchBlock(ref)), at: 0, count };
    }
    const { place, table } = this.#bufferOf(ref);
    const lanes = place?.memory.lanes(this.#call.dtype as DType) as Lanes;
    return { lanes, at: this.#startOf(ref, place, table), count };
  }

  #bufferOf(ref: Ref): { readonly place: RankMemory | undefined; readonly table: ChunkTable } {
    const { tables, input, output } = this.#call;
    return bufferOf(ref) === 0
      ? { place: input, table: tables.in }
      : { place: output, table: tables.out };
  }

  /** The first element of this round in the memory of a chunk. */
  #startOf(ref: Ref, place: RankMemory | undefined, { offsets }: ChunkTable): number {
    return (place?.byteOffset ?? 0) / this.#bytes + (offsets[chunkOf(ref)] ?? 0) + this.#first;
  }

  #scratchBlock(ref: Ref): MessageBlock {
    const chunk = chunkOf(ref);
    let block = this.#scratch.get(chunk);
    if (block === undefined) {
      block = this.#blocks.take(this.#count(ref) * this.#bytes);
      this.#scratch.set(chunk, block);
    }
    return block;
  }

  #count(ref: Ref): number {
    return Math.max(0, Math.min(this.#slice, this.#length(ref) - this.#first));
  }

  /** Elements of a chunk; a scratch chunk is as long as an input chunk. */
  #length(ref: Ref): number {
    const { tables } = this.#call;
    const chunk = chunkOf(ref);
    if (bufferOf(ref) === 1) return tables.out.lengths[chunk] ?? 0;
    const { lengths } = tables.in;
    return lengths[bufferOf(ref) === 0 ? chunk : chunk % lengths.length] ?? 0;
  }

  /** Gives the scratch back. */
  release(): void {
    for (const block of this.#scratch.values()) this.#blocks.give(block);
    this.#scratch.clear();
  }
}

const noChunks: Chunks = [];

/** The chunks that give a message its length. */
function chunksOf({ read, write }: Move): Chunks {
  return read ?? write ?? noChunks;
}

function firstOf(chunks: Chunks | undefined): number {
  return chunks?.[0] ?? none;
}

function isInput(chunks: Chunks | undefined): boolean {
  return chunks !== undefined && bufferOf(firstOf(chunks)) === 0;
}

function isScratch(chunks: Chunks): boolean {
  return bufferOf(firstOf(chunks)) === 2;
}

/** Elements to fold, and where in their chunk they lie. */
interface FoldRange {
  readonly acc: Lanes;
  readonly at: number;
  readonly source: Lanes;
  readonly sourceAt: number;
  readonly count: number;
  readonly inChunk: number;
}

function foldRange(
  fold: Fold,
  { acc, at, source, sourceAt, count }: FoldRange,
  { before, isContribution }: { readonly before: number; readonly isContribution: boolean },
): void {
  if (before > 0) {
    if (isContribution) fold.addContribution(acc, at, source, sourceAt, count);
    else fold.addPartial(acc, at, source, sourceAt, count);
  } else if (isContribution) fold.begin(acc, at, source, sourceAt, count);
  else {
    const width = lanesPerElement(fold.dtype);
    acc.set(source.subarray(sourceAt * width, (sourceAt + count) * width), at * width);
  }
}
