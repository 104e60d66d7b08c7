/** Facts of a bound call that all executors need. */
import type { Fold } from "../../../algorithms/arithmetic/index.ts";
import type { ChunkTable, FusedFold, Operand, Place } from "../../../algorithms/index.ts";
import type { BoundCall } from "../executor.ts";

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
