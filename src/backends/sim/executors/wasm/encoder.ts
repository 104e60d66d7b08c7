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
import type { Arena } from "./arena.ts";

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
const scalarBytes = 32;

/** Where a call's data lies in the arena, by rank. */
export interface Addresses {
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** The mask of rounding by position. */
  readonly mask: number;
}

/** The list of one call, or a part of it. */
export interface WrittenList {
  readonly address: number;
  /** Groups of the list: those without bytes are left out. */
  readonly groups: number;
  /** Bytes of all groups together. */
  readonly bytes: number;
  /** Bytes that are read and written for it. */
  readonly traffic: number;
  /** Scratch memory that a thread needs. */
  readonly scratchBytes: number;
  /** The first group beyond the end of the list. */
  readonly next: number;
}

type Group = readonly FusedFold[];

/** Bytes of a list of these groups, and of the call's scalars before it. */
export function listBytes(call: BoundCall, groups: readonly Group[]): number {
  return scalarsBytes(call) + 4 * groups.reduce((sum, group) => sum + wordsOf(group), 0);
}

function scalarsBytes({ folds }: BoundCall): number {
  return scalarBytes * Math.max(1, folds.length);
}

/** Writes the scalars of a call, and behind them its groups from `begin` on as a list, into so many bytes at an address. */
export function writeList(
  arena: Arena,
  call: BoundCall,
  addresses: Addresses,
  begin: number,
  at: number,
  byteLength: number,
): WrittenList {
  const { dtype, folds, layout, plan, separate } = call;
  const { words } = arena;
  const width = bytesOf(dtype);
  const isSameFold = distinct(folds).length <= 1;
  const ownKernel = kernelOf(dtype, folds[0]);
  writeScalars(dtype, folds, arena.memory.buffer, at);

  const writeOperand = (operand: Operand, isFirst: boolean, word: number): void => {
    if (operand.kind === "fold") {
      words[word] = operand.fold;
      words[word + 1] = how.plain | how.block;
      return;
    }
    const { rank } = operand.place;
    words[word] = (addresses.inputs[rank] as number) + firstOf(layout.in, operand.place) * width;
    words[word + 1] = howOf(foldOf(folds, operand), operand, isFirst);
    words[word + 2] = at + (isSameFold ? 0 : rank) * scalarBytes;
  };

  const writeFold = (fold: FusedFold, inBlocks: boolean, word: number): number => {
    const { operands, targets, final } = fold;
    const { terms } = foldOf(folds, operands[0]) ?? {};
    const isWide = terms?.accumulator === "float32" && operands.length > 1;
    const kernel = isWide ? ownKernel - (ownKernel % kernelsPerDType) + wideKernel : ownKernel;
    words[word] = !inBlocks && isCopy(call, fold) ? copyKernel : kernel;
    words[word + 1] = operands.length;
    words[word + 2] = targets.length;
    words[word + 3] = (final ? flags.final : 0) | (separate === undefined ? 0 : flags.joined);
    words[word + 4] = terms === undefined || terms.divisor === 1 ? 0 : terms.divisor;
    words[word + 5] = addresses.mask;
    let next = word + foldWords;
    for (let i = 0; i < operands.length; i++) {
      writeOperand(operands[i] as Operand, i === 0, next);
      next += operandWords;
    }
    for (const target of targets) {
      words[next++] =
        (addresses.outputs[target.rank] as number) + firstOf(layout.out, target) * width;
    }
    return next;
  };

  const address = at + scalarsBytes(call);
  const written = { address, groups: 0, bytes: 0, traffic: 0, scratchBytes: 0, next: begin };
  let word = address / 4;
  for (; written.next < plan.groups.length; written.next++) {
    const group = plan.groups[written.next] as Group;
    const bytes = lengthOf(call, group) * width;
    if (bytes === 0) continue;
    const length = wordsOf(group);
    if (4 * (word + length) > at + byteLength) break;
    const inBlocks = group.length > 1 || separate !== undefined;
    const block = inBlocks ? blockBytesOf(group.length + 1) : 0;
    const table = inBlocks ? tableBytesOf(group) : 0;
    words[word] = length;
    words[word + 1] = bytes;
    words[word + 2] = group.length;
    words[word + 3] = block;
    words[word + 4] = table;
    word += groupWords;
    for (const fold of group) {
      word = writeFold(fold, inBlocks, word);
      written.traffic += (fold.operands.length + fold.targets.length) * bytes;
    }
    written.groups++;
    written.bytes += bytes;
    const scratchBytes = spareBytes + table + (group.length + 1) * block;
    written.scratchBytes = Math.max(written.scratchBytes, scratchBytes);
  }
  return written;
}

/** The way in which an operand meets the running value. */
function howOf(fold: Fold | undefined, { kind }: Operand, isFirst: boolean): number {
  if (fold === undefined || !fold.scales) return how.plain;
  return fold.terms.fused && (isFirst || kind === "contribution") ? how.fused : how.product;
}

/** Words that a group takes. */
function wordsOf(group: Group): number {
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
function writeScalars(
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
function tableBytesOf(group: Group): number {
  let words = 0;
  for (const { operands, targets } of group) {
    words = Math.max(words, operandWords * operands.length + targets.length + 1);
  }
  return Math.ceil((4 * words) / spareBytes) * spareBytes;
}
