/**
 * The values of a lane's steps: chunks of a rank's buffers, and blocks of messages, folded as the plan of the call says.
 *
 * A rank's own input is a contribution, everything else a partial: a message, an output, and scratch. A contribution that is sent
 * or stored becomes a partial. A lone contribution without arithmetic keeps its bytes.
 */
import type { Fold, Lanes } from "../../algorithms/arithmetic/index.ts";
import { lanesOf, lanesPerElement } from "../../algorithms/arithmetic/index.ts";
import type { HostMemory } from "../../algorithms/host-memory.ts";
import {
  type ChunkTable,
  type PlanFolds,
  type Program,
  takeSeparate,
} from "../../algorithms/index.ts";
import {
  bufferOf,
  chunkOf,
  column,
  none,
  type Ref,
  type Step,
  stepWidth,
} from "../../algorithms/program.ts";
import { bytesOf, type DType } from "../../api/index.ts";
import type { Block, Blocks } from "./blocks.ts";

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
  /** The input does not change during the call. */
  readonly hasStableInput: boolean;
  /** Messages of a flow that may wait at the receiver: the same number on both ranks. */
  readonly credits: number;
  /** The input is a copy that was made for this call. */
  readonly isCopied: boolean;
}

/** A part of a chunk that one round moves. */
interface Segment {
  /** First element in its buffer, and in its chunk. */
  readonly at: number;
  readonly inChunk: number;
  readonly count: number;
}

/** The value of a step: a block, or a range of the input that does not change during the call. */
export interface Value {
  readonly bytes: Uint8Array;
  /** `undefined` for a range of the input. */
  readonly block: Block | undefined;
}

/** Elements of a chunk that a round moves: messages have a limited length, and rounds overlap. */
export function sliceElements(program: Program, dtype: DType | undefined): number {
  if (dtype === undefined) return 1;
  const perMessage = Math.floor(sliceBytes / bytesOf(dtype) / widestSpan(program));
  return Math.max(leastElements, perMessage);
}

/** Messages of a flow that may wait at the receiver. Programs need one; short messages have more. */
export function creditsOf(program: Program, dtype: DType | undefined, count: number): number {
  if (dtype === undefined) return leastCredits;
  const elements = Math.min(
    sliceElements(program, dtype),
    Math.ceil(count / program.chunksPerBlock),
  );
  const bytes = Math.max(1, elements * bytesOf(dtype) * widestSpan(program));
  return Math.max(leastCredits, Math.min(mostCredits, Math.floor(sliceBytes / bytes)));
}

const [leastCredits, mostCredits] = [2, 64];

const sliceBytes = 128 * 2 ** 10;
const leastElements = 256;

const noBytes = new Uint8Array(0);

const spans = new WeakMap<Program, number>();

function widestSpan(program: Program): number {
  let widest = spans.get(program);
  if (widest === undefined) {
    widest = 1;
    const { code } = program;
    for (let at: number = column.span; at < code.length; at += stepWidth) {
      widest = Math.max(widest, code[at] as number);
    }
    spans.set(program, widest);
  }
  return widest;
}

/** The steps of one round of a call on this rank's data. */
export class RoundData {
  readonly #call: CallData;
  readonly #blocks: Blocks;
  /** First element of the round in each chunk, and the number of elements. */
  readonly #first: number;
  readonly #slice: number;
  readonly #bytes: number;
  readonly #width: 1 | 2;
  /** Scratch by chunk: its memory, or the operands of a fold that rounds once. */
  readonly #scratch = new Map<number, Block>();
  readonly #operands = new Map<number, readonly Block[]>();

  constructor(call: CallData, round: number, slice: number, blocks: Blocks) {
    this.#call = call;
    this.#blocks = blocks;
    this.#first = round * slice;
    this.#slice = slice;
    this.#bytes = call.dtype === undefined ? 0 : bytesOf(call.dtype);
    this.#width = call.dtype === undefined ? 1 : lanesPerElement(call.dtype);
  }

  /** True where a step has elements in this round. The first round has all steps. */
  has({ read, write, span }: Step): boolean {
    if (this.#first === 0) return true;
    const ref = read === none ? write : read;
    for (let i = 0; i < span; i++) if (this.#length(ref, i) > this.#first) return true;
    return false;
  }

  /** Bytes of the message of a step. */
  bytesOf({ read, write, span }: Step): number {
    const ref = read === none ? write : read;
    let elements = 0;
    for (let i = 0; i < span; i++) elements += this.#count(ref, i);
    return elements * this.#bytes;
  }

  /** Computes a step, stores its value where it says so, and returns it where it is to be sent. Takes over `received`. */
  perform(step: Step, received: Block | undefined): Value | undefined {
    const { read, other, write, span, to } = step;
    if (span === 0) {
      if (received !== undefined) this.#blocks.give(received);
      return undefined;
    }
    if (this.#isChained(step, received)) return this.#chain(step, received);
    if (received === undefined && other === none) {
      const alone = this.#alone(step);
      if (alone !== undefined) return alone === "stored" ? undefined : alone;
    }
    const block = received ?? this.#blocks.take(this.bytesOf(step));
    let before = received === undefined ? 0 : 1;
    if (
      read !== none &&
      other !== none &&
      this.#isContribution(read) &&
      !this.#isContribution(other)
    ) {
      // The contribution is folded into the partial.
      this.#fold(block, other, span, before++);
      this.#fold(block, read, span, before++);
    } else {
      if (read !== none) this.#fold(block, read, span, before++);
      if (other !== none) this.#fold(block, other, span, before++);
    }
    if (step.final) this.#finish(block);
    if (write !== none) this.#store(block, write, span);
    if (to !== none) return { bytes: block.bytes, block };
    this.#blocks.give(block);
    return undefined;
  }

  /** True for a step of a fold that rounds once, at its end: scratch then holds the operands so far. */
  #isChained({ read, other, write }: Step, received: Block | undefined): boolean {
    if (this.#call.folds?.accumulator !== "float32") return false;
    const isFold = read !== none && (other !== none || received !== undefined);
    return isFold || (write !== none && bufferOf(write) === 2);
  }

  /** Joins the operands of a step; the last one folds them all. */
  #chain(step: Step, received: Block | undefined): Value | undefined {
    const { read, other, write, final, to } = step;
    const operands = [read, other].flatMap((ref) => (ref === none ? [] : this.#takeOperands(ref)));
    if (received !== undefined) operands.push(received);
    if (!final) {
      this.#operands.set(chunkOf(write), operands);
      return undefined;
    }
    const { dtype, folds } = this.#call;
    const block = this.#blocks.take(this.bytesOf(step));
    const lanes = ({ memory, bytes }: Block): Lanes =>
      lanesOf(dtype as DType, memory, 0, bytes.byteLength);
    const count = block.bytes.byteLength / this.#bytes;
    const starts = operands.map(() => 0);
    folds?.fold.chain(lanes(block), 0, operands.map(lanes), starts, count);
    this.#finish(block);
    for (const operand of operands) this.#blocks.give(operand);
    if (write !== none) this.#store(block, write, 1);
    if (to !== none) return { bytes: block.bytes, block };
    this.#blocks.give(block);
    return undefined;
  }

  /** The operands of a scratch chunk, which has none from now on; or a copy of a chunk of a buffer. */
  #takeOperands(ref: Ref): readonly Block[] {
    if (bufferOf(ref) === 2) {
      const operands = this.#operands.get(chunkOf(ref)) ?? [];
      this.#operands.delete(chunkOf(ref));
      return operands;
    }
    const view = this.#view(ref, 0);
    const block = this.#blocks.take(view.byteLength);
    block.bytes.set(view);
    return [block];
  }

  /** The value of a single chunk without arithmetic; `stored` if it is not to be sent, `undefined` where there is arithmetic. */
  #alone({ read, write, span, to, final }: Step): Value | "stored" | undefined {
    const { folds, hasStableInput } = this.#call;
    const isInput = this.#isContribution(read);
    if (isInput && folds?.fold.scales === true) return undefined;
    // A complete partial is finished, a contribution that is complete by itself keeps its bytes.
    if (final && !isInput) return undefined;
    if (write !== none) this.#copy(read, write, span);
    if (to === none) return "stored";
    if (isInput && hasStableInput && span === 1) {
      return { bytes: this.#view(read, 0), block: undefined };
    }
    const block = this.#blocks.take(this.bytesOf({ read, write, span } as Step));
    let at = 0;
    for (let i = 0; i < span; i++) {
      const bytes = this.#view(read, i);
      block.bytes.set(bytes, at);
      at += bytes.byteLength;
    }
    return { bytes: block.bytes, block };
  }

  /** Folds chunks into a block with `before` operands. */
  #fold(block: Block, ref: Ref, span: number, before: number): void {
    const { folds, dtype } = this.#call;
    const acc = lanesOf(dtype as DType, block.memory, 0, block.bytes.byteLength);
    const source = this.#lanes(ref);
    let at = 0;
    for (let i = 0; i < span; i++) {
      const { at: sourceAt, inChunk, count } = this.#segment(ref, i);
      if (folds === undefined) {
        acc.set(this.#slices(source(i), sourceAt, count), at * this.#width);
      } else {
        this.#foldBoth(
          folds,
          { acc, at, source: source(i), sourceAt, count, inChunk },
          {
            before,
            isContribution: this.#isContribution(ref),
          },
        );
      }
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
    const { dtype } = this.#call;
    const other = lanesOf(dtype as DType, second.memory, 0, second.bytes.byteLength);
    other.set(this.#slices(acc, at, count));
    foldRange(fold, range, how);
    foldRange(separate, { ...range, acc: other, at: 0 }, how);
    takeSeparate(this.#slices(acc, at, count), other, count, this.#bytes, inChunk);
    this.#blocks.give(second);
  }

  #finish(block: Block): void {
    const { folds, dtype } = this.#call;
    const lanes = lanesOf(dtype as DType, block.memory, 0, block.bytes.byteLength);
    folds?.fold.finish(lanes, 0, block.bytes.byteLength / this.#bytes);
  }

  #store(block: Block, write: Ref, span: number): void {
    let at = 0;
    for (let i = 0; i < span; i++) {
      const target = this.#view(write, i);
      target.set(block.bytes.subarray(at, at + target.byteLength));
      at += target.byteLength;
    }
  }

  #copy(read: Ref, write: Ref, span: number): void {
    for (let i = 0; i < span; i++) this.#view(write, i).set(this.#view(read, i));
  }

  #isContribution(ref: Ref): boolean {
    return ref !== none && bufferOf(ref) === 0;
  }

  /** Lanes that a chunk lies in, by the number of the chunk behind `ref`. */
  #lanes(ref: Ref): (i: number) => Lanes {
    const { dtype, input, output } = this.#call;
    const buffer = bufferOf(ref);
    if (buffer === 2) {
      return (i) => {
        const { memory, bytes } = this.#scratchBlock(ref, i);
        return lanesOf(dtype as DType, memory, 0, bytes.byteLength);
      };
    }
    const lanes = (buffer === 0 ? input : output)?.memory.lanes(dtype as DType) as Lanes;
    return () => lanes;
  }

  #slices(lanes: Lanes, at: number, count: number): Lanes {
    return lanes.subarray(at * this.#width, (at + count) * this.#width);
  }

  /** The elements of this round in the i-th chunk of a reference, in the lanes of `#lanes`. */
  #segment(ref: Ref, i: number): Segment {
    const count = this.#count(ref, i);
    const inChunk = this.#first;
    if (bufferOf(ref) === 2) return { at: 0, inChunk, count };
    const { tables, input, output } = this.#call;
    const isInput = bufferOf(ref) === 0;
    const place = isInput ? input : output;
    const start = (place?.byteOffset ?? 0) / this.#bytes;
    const table = isInput ? tables.in : tables.out;
    return { at: start + (table.offsets[chunkOf(ref) + i] ?? 0) + inChunk, inChunk, count };
  }

  /** The bytes of the i-th chunk of a reference in this round. */
  #view(ref: Ref, i: number): Uint8Array {
    if (bufferOf(ref) === 2) return this.#scratchBlock(ref, i).bytes;
    const { at, count } = this.#segment(ref, i);
    // An empty block may lie behind the end of its buffer.
    if (count === 0) return noBytes;
    const { input, output } = this.#call;
    const { memory } = (bufferOf(ref) === 0 ? input : output) as RankMemory;
    return new Uint8Array(memory.buffer, at * this.#bytes, count * this.#bytes);
  }

  #scratchBlock(ref: Ref, i: number): Block {
    const chunk = chunkOf(ref) + i;
    let block = this.#scratch.get(chunk);
    if (block === undefined) {
      block = this.#blocks.take(this.#count(ref, i) * this.#bytes);
      this.#scratch.set(chunk, block);
    }
    return block;
  }

  #count(ref: Ref, i: number): number {
    return Math.max(0, Math.min(this.#slice, this.#length(ref, i) - this.#first));
  }

  /** Elements of the i-th chunk of a reference; a scratch chunk is as long as an input chunk. */
  #length(ref: Ref, i: number): number {
    const { tables } = this.#call;
    const chunk = chunkOf(ref) + i;
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
