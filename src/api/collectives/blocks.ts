/** Blocks of v-forms: where they start, that they lie inside their buffer, that they do not overlap. */
import type { DeviceBuffer } from "../buffer.ts";
import type { DType } from "../dtype.ts";
import type { SignatureField } from "../ledger/posting.ts";
import { runningSum, sum } from "../sums.ts";
import type { Validator } from "./validate.ts";

/** Where blocks start: as given, or one after another. */
export function offsetsOf(
  check: Validator,
  field: string,
  offsets: readonly number[] | undefined,
  counts: readonly number[],
): readonly number[] {
  return offsets === undefined ? Object.freeze(runningSum(counts)) : check.counts(field, offsets);
}

/**
 * Where the blocks of a buffer start that holds one for every rank. Without offsets they follow one another, and the buffer is
 * exactly as long as all of them. With offsets they may lie anywhere inside it, and elements between them are unchanged.
 */
export function blocksIn(
  check: Validator,
  field: "send" | "recv",
  buffer: DeviceBuffer,
  dtype: DType,
  counts: readonly number[],
  given: readonly number[] | undefined,
): readonly number[] {
  const offsets = offsetsOf(check, `${field}Offsets`, given, counts);
  if (given === undefined) check.shape(field, buffer, dtype, sum(counts));
  else check.dtype(field, buffer, dtype);
  assertInside(check, `${field}Offsets`, counts, offsets, buffer);
  return offsets;
}

/** Refuses a block that reaches beyond its buffer; `field` says what the caller gave, which places it. */
export function assertInside(
  check: Validator,
  field: "sendCounts" | "sendOffsets" | "recvCounts" | "recvOffsets",
  counts: readonly number[],
  offsets: readonly number[],
  buffer: DeviceBuffer,
): void {
  counts.forEach((count, rank) => {
    const end = (offsets[rank] as number) + count;
    if (count === 0 || end <= buffer.length) return;
    throw check.fault(
      `${field}[${rank}]`,
      `the block ends at element ${end}`,
      `one inside the buffer's ${buffer.length} elements`,
    );
  });
}

/** The lengths of the blocks of the root's buffer, one for every rank: as given, or all as long as the root's own, `other`. */
export function countsOfRoot(
  check: Validator,
  field: "sendCounts" | "recvCounts",
  given: readonly number[] | undefined,
  { length }: DeviceBuffer,
  size: number,
): readonly number[] {
  return given === undefined ? new Array<number>(size).fill(length) : check.counts(field, given);
}

/** Refuses blocks of a receive buffer that overlap. */
export function assertDisjoint(
  check: Validator,
  counts: readonly number[],
  offsets: readonly number[],
): void {
  const blocks = counts
    .map((count, rank) => ({
      rank,
      from: offsets[rank] as number,
      to: (offsets[rank] as number) + count,
    }))
    .filter((block) => block.to > block.from)
    .sort((a, b) => a.from - b.from);
  blocks.forEach((block, index) => {
    const next = blocks[index + 1];
    if (next === undefined || next.from >= block.to) return;
    throw check.fault(
      `recvOffsets[${next.rank}]`,
      `the block starts at element ${next.from}, inside that of rank ${block.rank}`,
      "blocks apart from each other",
    );
  });
}

/** Counts as fields of a signature: all ranks must give the same. */
export function countFields(name: string, counts: readonly number[]): SignatureField[] {
  return counts.map((count, rank) => [`${name}[${rank}]`, count]);
}
