/**
 * The reference executor: plain loops over typed arrays.
 *
 * A fold runs block by block, so that its running value stays in the cache. Each block is folded from all its sources at once,
 * and then written to every target. Memory beyond the callers' buffers is a few blocks.
 */
import {
  type Fold,
  type Lanes,
  lanesOf,
  lanesPerElement,
} from "../../../algorithms/arithmetic/index.ts";
import { allocateHost, HostMemory } from "../../../algorithms/host-memory.ts";
import {
  type ChunkTable,
  type FusedFold,
  type Operand,
  type Place,
  takeSeparate,
} from "../../../algorithms/index.ts";
import { bytesOf, type DType } from "../../../api/index.ts";
import { invariant } from "../../../api/invariant.ts";
import type { BoundBuffer, BoundCall, Executor } from "../executor.ts";

/** Bytes of a block: small enough for the first-level cache beside its sources. */
const blockBytes = 16_384;

/** The executor that works in every runtime. */
export function cpu(): Executor {
  const blocks = new Blocks();
  return {
    name: "cpu",
    execute(call) {
      const run = runOf(call, blocks);
      for (const group of call.plan.groups) run.group(group);
    },
  };
}

/** The run of a call: the same one for a repeated call, except where an input has to be copied first. */
function runOf(call: BoundCall, blocks: Blocks): Run {
  if (call.work instanceof Run) return call.work;
  const run = new Run(call, blocks);
  if (!run.copiesInputs) call.work = run;
  return run;
}

/** Number of the scratch block that holds a contribution taken as a partial; folds have those from 0 on. */
const partialBlock = -1;

/** Number of the scratch block for the second way of folding a block. */
const separateBlock = -2;

/** Scratch blocks, kept from call to call: one for the running value of each fold of a group. */
class Blocks {
  readonly #memory = new Map<number, HostMemory>();

  lanes(dtype: DType, number: number): Lanes {
    let memory = this.#memory.get(number);
    if (memory === undefined) {
      memory = allocateHost("scratch", 0n, blockBytes);
      this.#memory.set(number, memory);
    }
    return memory.lanes(dtype);
  }
}

/** One bound call. */
class Run {
  /** The inputs are copies, taken before any output was written. */
  readonly copiesInputs: boolean;
  readonly #call: BoundCall;
  readonly #blocks: Blocks;
  readonly #width: number;
  readonly #blockElements: number;
  readonly #inputs: (Lanes | undefined)[];
  readonly #outputs: (Lanes | undefined)[];
  /** First element of each rank's buffer in its memory. */
  readonly #inStarts: number[];
  readonly #outStarts: number[];
  readonly #sameFold: boolean;
  readonly #sources: Lanes[] = [];
  readonly #sourceAts: number[] = [];

  constructor(call: BoundCall, blocks: Blocks) {
    const { dtype, inputs, outputs, folds } = call;
    this.#call = call;
    this.#blocks = blocks;
    this.#width = lanesPerElement(dtype);
    this.#blockElements = blockBytes / bytesOf(dtype);
    const keep = keepsInputs(call);
    this.copiesInputs = keep;
    this.#inputs = inputs.map((buffer) => buffer && lanes(dtype, buffer, keep));
    this.#outputs = outputs.map((buffer) => buffer && lanes(dtype, buffer, false));
    this.#inStarts = inputs.map((buffer) => (keep ? 0 : elementOffset(dtype, buffer)));
    this.#outStarts = outputs.map((buffer) => elementOffset(dtype, buffer));
    this.#sameFold = distinct(folds).length <= 1;
  }

  /** Runs the folds of one group block by block, because they may need each other's results of the same block. */
  group(group: readonly FusedFold[]): void {
    const [only] = group;
    if (group.length === 1 && only !== undefined && isCopy(this.#call, only)) this.#copyChunk(only);
    else this.#foldBlocks(group);
  }

  #foldBlocks(group: readonly FusedFold[]): void {
    const length = lengthOf(this.#call, group);
    for (let at = 0; at < length; at += this.#blockElements) {
      const count = Math.min(this.#blockElements, length - at);
      group.forEach((fold, number) => {
        const value = this.#blocks.lanes(this.#call.dtype, number);
        this.#fold(fold, this.#call.folds, value, at, count);
        this.#joinSeparate(fold, value, at, count);
        if (fold.final) foldOf(this.#call.folds, fold.operands[0])?.finish(value, 0, count);
        const lanes = count * this.#width;
        const result = lanes === value.length ? value : value.subarray(0, lanes);
        for (const target of fold.targets) {
          this.#outputs[target.rank]?.set(result, (this.#outAt(target) + at) * this.#width);
        }
      });
    }
  }

  /** Where rounding depends on the position, the block is folded both ways, and each element is taken from its way. */
  #joinSeparate(fold: FusedFold, value: Lanes, at: number, count: number): void {
    const { separate, dtype } = this.#call;
    if (separate === undefined) return;
    const other = this.#blocks.lanes(dtype, separateBlock);
    this.#fold(fold, separate, other, at, count);
    takeSeparate(value, other, count, bytesOf(dtype), at);
  }

  #copyChunk({ operands, targets }: FusedFold): void {
    const [operand] = operands;
    if (operand === undefined || operand.kind === "fold") return;
    const from = this.#inputs[operand.place.rank];
    const length = lengthAt(this.#call.layout.in, operand.place) * this.#width;
    if (from === undefined || length === 0) return;
    const at = this.#inAt(operand.place) * this.#width;
    const source = from.subarray(at, at + length);
    for (const target of targets) {
      this.#outputs[target.rank]?.set(source, this.#outAt(target) * this.#width);
    }
  }

  /** Computes the block of a fold in `value`, before `finish`. */
  #fold(fold: FusedFold, folds: readonly Fold[], value: Lanes, at: number, count: number): void {
    const { operands } = fold;
    const first = foldOf(folds, operands[0]) as Fold;
    const chained = this.#sameFold ? this.#gather(operands, first.scales, at) : 0;
    if (chained > 1) first.chain(value, 0, this.#sources, this.#sourceAts, count);
    const start = chained > 1 ? chained : 0;
    for (let i = start; i < operands.length; i++) {
      const operand = operands[i] as Operand;
      this.#apply(operand, foldOf(folds, operand) as Fold, i === 0, value, at, count);
    }
  }

  /** Prepares the contributions that a fold begins with, and returns their number. Unscaled partials of one rank count too. */
  #gather(operands: readonly Operand[], scales: boolean, at: number): number {
    let count = 0;
    for (const operand of operands) {
      if (operand.kind === "fold" || (scales && operand.kind === "partial")) break;
      const { rank } = operand.place;
      this.#sources[count] = this.#inputs[rank] as Lanes;
      this.#sourceAts[count] = this.#inAt(operand.place) + at;
      count++;
    }
    this.#sources.length = count;
    this.#sourceAts.length = count;
    return count;
  }

  /** Folds one operand into the running value, or begins it. */
  #apply(
    operand: Operand,
    fold: Fold,
    first: boolean,
    value: Lanes,
    at: number,
    count: number,
  ): void {
    if (operand.kind === "fold") {
      const other = this.#blocks.lanes(this.#call.dtype, operand.fold);
      if (first) value.set(other);
      else fold.addPartial(value, 0, other, 0, count);
      return;
    }
    const source = this.#inputs[operand.place.rank] as Lanes;
    const sourceAt = this.#inAt(operand.place) + at;
    if (first) fold.begin(value, 0, source, sourceAt, count);
    else if (operand.kind === "contribution")
      fold.addContribution(value, 0, source, sourceAt, count);
    else if (!fold.scales) fold.addPartial(value, 0, source, sourceAt, count);
    else {
      const partial = this.#blocks.lanes(this.#call.dtype, partialBlock);
      fold.begin(partial, 0, source, sourceAt, count);
      fold.addPartial(value, 0, partial, 0, count);
    }
  }

  #inAt(place: Place): number {
    return (this.#inStarts[place.rank] as number) + firstOf(this.#call.layout.in, place);
  }

  #outAt(place: Place): number {
    return (this.#outStarts[place.rank] as number) + firstOf(this.#call.layout.out, place);
  }
}

/** True if the inputs are needed as they were before the first output is written. */
export function keepsInputs({ inPlace, plan }: BoundCall): boolean {
  return inPlace && !plan.inPlaceSafe;
}

/** A lone contribution without arithmetic keeps its bytes, NaN payloads included. */
export function isCopy({ folds }: BoundCall, { operands, reduces }: FusedFold): boolean {
  const [first] = operands;
  if (operands.length !== 1 || first?.kind !== "contribution") return false;
  return !reduces || folds[first.place.rank]?.scales === false;
}

/** Elements of the chunks that a group folds. */
export function lengthOf({ layout }: BoundCall, group: readonly FusedFold[]): number {
  for (const { operands } of group) {
    for (const operand of operands) {
      if (operand.kind === "fold") continue;
      return lengthAt(layout.in, operand.place);
    }
  }
  return 0;
}

/** First element of a chunk in its rank's buffer. */
export function firstOf(tables: readonly ChunkTable[], { rank, chunk }: Place): number {
  return tables[rank]?.offsets[chunk] ?? 0;
}

/** Elements of a chunk. */
export function lengthAt(tables: readonly ChunkTable[], { rank, chunk }: Place): number {
  return tables[rank]?.lengths[chunk] ?? 0;
}

/** The fold of the rank that an operand comes from; `undefined` where nothing is folded. */
export function foldOf(folds: readonly Fold[], operand: Operand | undefined): Fold | undefined {
  return folds[operand === undefined || operand.kind === "fold" ? 0 : operand.place.rank];
}

/** The folds of a call, by rank; a single one where all ranks share it. */
export function distinct(folds: readonly Fold[]): readonly Fold[] {
  return folds.every((fold) => fold === folds[0]) ? folds.slice(0, 1) : folds;
}

/** The lanes of a buffer's whole memory, or of a copy of the buffer alone. */
function lanes(
  dtype: DType,
  { memory, byteOffset, byteLength }: BoundBuffer,
  copied: boolean,
): Lanes {
  invariant(
    memory instanceof HostMemory,
    "cpu() allocates no memory of its own, so all of it is host memory",
  );
  if (!copied) return memory.lanes(dtype);
  return lanesOf(dtype, memory.buffer.slice(byteOffset, byteOffset + byteLength), 0, byteLength);
}

function elementOffset(dtype: DType, buffer: BoundBuffer | undefined): number {
  return buffer === undefined ? 0 : buffer.byteOffset / bytesOf(dtype);
}
