/** Writes the folds of a bound call as the list of groups that the kernels read; assembly/groups.ts defines each word. */
import type { Fold } from "../../../../algorithms/arithmetic/index.ts";
import { fillElements } from "../../../../algorithms/host-memory.ts";
import type { FusedFold, Operand } from "../../../../algorithms/index.ts";
import {
  bytesOf,
  type DType,
  dtypeInfo,
  dtypes,
  type NamedReduceOp,
} from "../../../../api/index.ts";
import type { BoundCall } from "../../executor.ts";
import { distinct, firstOf, foldOf, isCopy, lengthOf } from "../cpu.ts";

const groupWords = 5;
const foldWords = 6;
const operandWords = 3;
/** Kernels of a dtype, which are numbered one after another; assembly/kernels.ts has the same number. */
const kernelsPerDType = 8;
/** The kernel of each operator among those of its dtype. An average of integers is a sum, divided at the end. */
const operatorKernels: Readonly<Record<NamedReduceOp, number>> = {
  sum: 0,
  prod: 1,
  min: 2,
  max: 3,
  avg: 0,
};
/** The kernels of sums of products with a scalar, and of sums in float32. */
const scaledKernel = 4;
const wideKernel = 5;
/** A kernel's number, as a word, for a copy of bytes. */
const copyKernel = 0xffff_ffff;
/** Ways in which an operand meets the running value. */
const how = { plain: 0, product: 1, fused: 2, block: 4 } as const;
const flags = { final: 1, joined: 2 } as const;
/** Bytes that precede the table in scratch memory, and bytes of a block and of all blocks together. */
const spareBytes = 64;
const maxBlockBytes = 16_384;
const minBlockBytes = 256;
const blocksBytes = 2 ** 20;
/** Bytes of a scalar: as lanes of the dtype, and as two doubles. */
export const scalarBytes = 32;

/** Where a call's data lies in the arena, by rank. */
export interface Addresses {
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** The mask of rounding by position. */
  readonly mask: number;
}

/** One bound call, with everything that is the same for all of its groups. */
export class Encoder {
  readonly #call: BoundCall;
  readonly #addresses: Addresses;
  /** Where the scalars of the ranks' folds lie. */
  readonly #scalars: number;
  readonly #bytes: number;
  readonly #sameFold: boolean;
  readonly #kernel: number;

  constructor(call: BoundCall, addresses: Addresses, scalars: number) {
    this.#call = call;
    this.#addresses = addresses;
    this.#scalars = scalars;
    this.#bytes = bytesOf(call.dtype);
    this.#sameFold = distinct(call.folds).length <= 1;
    this.#kernel = kernelOf(call.dtype, call.folds[0]);
  }

  /** Bytes that a group folds for each of its targets. */
  bytesOf(group: readonly FusedFold[]): number {
    return lengthOf(this.#call, group) * this.#bytes;
  }

  /** Bytes that a group reads and writes. */
  trafficOf(group: readonly FusedFold[], bytes: number): number {
    let streams = 0;
    for (const { operands, targets } of group) streams += operands.length + targets.length;
    return streams * bytes;
  }

  /** Writes a group from word `at` on, and returns the bytes of scratch memory that it needs. */
  write(group: readonly FusedFold[], bytes: number, words: Uint32Array, at: number): number {
    const joined = this.#call.separate !== undefined;
    const inBlocks = group.length > 1 || joined;
    const block = inBlocks ? blockBytesOf(group.length + 1) : 0;
    const table = inBlocks ? tableBytesOf(group) : 0;
    words[at] = wordsOf(group);
    words[at + 1] = bytes;
    words[at + 2] = group.length;
    words[at + 3] = block;
    words[at + 4] = table;
    let next = at + groupWords;
    for (const fold of group) next = this.#fold(fold, !inBlocks, words, next);
    return spareBytes + table + (inBlocks ? (group.length + 1) * block : 0);
  }

  #fold(fold: FusedFold, alone: boolean, words: Uint32Array, at: number): number {
    const { operands, targets, final } = fold;
    const copies = alone && isCopy(this.#call, fold);
    const { terms } = foldOf(this.#call.folds, operands[0]) ?? {};
    const joined = this.#call.separate !== undefined;
    const wide = terms?.accumulator === "float32" && operands.length > 1;
    const kernel = wide
      ? this.#kernel - (this.#kernel % kernelsPerDType) + wideKernel
      : this.#kernel;
    words[at] = copies ? copyKernel : kernel;
    words[at + 1] = operands.length;
    words[at + 2] = targets.length;
    words[at + 3] = (final ? flags.final : 0) | (joined ? flags.joined : 0);
    words[at + 4] = terms === undefined || terms.divisor === 1 ? 0 : terms.divisor;
    words[at + 5] = this.#addresses.mask;
    let next = at + foldWords;
    for (let i = 0; i < operands.length; i++) {
      this.#operand(operands[i] as Operand, i === 0, words, next);
      next += operandWords;
    }
    for (const target of targets) {
      const first = firstOf(this.#call.layout.out, target);
      words[next] = (this.#addresses.outputs[target.rank] as number) + first * this.#bytes;
      next++;
    }
    return next;
  }

  #operand(operand: Operand, first: boolean, words: Uint32Array, at: number): void {
    if (operand.kind === "fold") {
      words[at] = operand.fold;
      words[at + 1] = how.plain | how.block;
      return;
    }
    const { rank } = operand.place;
    const from = firstOf(this.#call.layout.in, operand.place);
    words[at] = (this.#addresses.inputs[rank] as number) + from * this.#bytes;
    words[at + 1] = this.#how(operand, first);
    words[at + 2] = this.#scalars + (this.#sameFold ? 0 : rank) * scalarBytes;
  }

  #how(operand: Operand, first: boolean): number {
    const fold = foldOf(this.#call.folds, operand);
    if (fold === undefined || !fold.scales) return how.plain;
    return fold.terms.fused && (first || operand.kind === "contribution") ? how.fused : how.product;
  }
}

/** Words that a group takes. */
export function wordsOf(group: readonly FusedFold[]): number {
  let words = groupWords;
  for (const { operands, targets } of group) {
    words += foldWords + operandWords * operands.length + targets.length;
  }
  return words;
}

/**
 * Writes the scalars of these folds, by rank, as the kernels read them; one where all ranks have the same. Floats of less than
 * 4 bytes are folded as float32.
 */
export function writeScalars(
  dtype: DType,
  folds: readonly Fold[],
  memory: ArrayBufferLike,
  address: number,
): void {
  if (!folds.some(({ scales }) => scales)) return;
  const { kind, bytes } = dtypeInfo[dtype];
  const lanes = kind === "float" && bytes < 4 ? "float32" : dtype;
  distinct(folds).forEach(({ terms: { scalar } }, rank) => {
    const at = address + rank * scalarBytes;
    fillElements(memory, at, 16 / bytesOf(lanes), lanes, scalar);
    fillElements(memory, at + 16, 2, "float64", scalar);
  });
}

function kernelOf(dtype: DType, fold: Fold | undefined): number {
  const first = dtypes.indexOf(dtype) * kernelsPerDType;
  if (fold === undefined) return first;
  const { op, scales } = fold;
  return first + (scales || typeof op === "object" ? scaledKernel : operatorKernels[op]);
}

/** Bytes of a block, so that all of a group's blocks stay small together. */
function blockBytesOf(blocks: number): number {
  const fair = Math.floor(blocksBytes / blocks / minBlockBytes) * minBlockBytes;
  return Math.max(minBlockBytes, Math.min(maxBlockBytes, fair));
}

/** Bytes of the operands and targets of a group's longest fold, its own block among the targets. */
function tableBytesOf(group: readonly FusedFold[]): number {
  let words = 0;
  for (const { operands, targets } of group) {
    words = Math.max(words, operandWords * operands.length + targets.length + 1);
  }
  return Math.ceil((4 * words) / spareBytes) * spareBytes;
}
