/**
 * Fusion: a whole program as a list of folds.
 *
 * Only the order of the fold decides the bits. So a chain of hops over one chunk needs no messages: it is one ordered fold of
 * the ranks' inputs. Its result is written to every rank that ends with it. `fuse` reads these folds off the values that the
 * program leaves; `proveFusion` rebuilds the values from the folds and requires the same ones.
 */
import { specifications } from "../api/collectives/index.ts";
import { assertArgument } from "./arguments.ts";
import { coveredInputs } from "./layout.ts";
import { assertFusible } from "./limits.ts";
import { assertProgram, none, type Program, stepCount } from "./program.ts";
import { type Execution, execute } from "./symbolic/execution.ts";
import type { Problem } from "./symbolic/matching.ts";
import type { ValueId, ValueTable } from "./symbolic/values.ts";

/** A chunk on a rank. */
export interface Place {
  readonly rank: number;
  readonly chunk: number;
}

/** An operand of a fold: a rank's input chunk, directly or as a partial, or the result of another fold. */
export type Operand =
  | { readonly kind: "contribution" | "partial"; readonly place: Place }
  | { readonly kind: "fold"; readonly fold: number };

/** One ordered fold: `((operands[0] ∘ operands[1]) ∘ operands[2]) …`. A lone contribution without a fold is a copy. */
export interface FusedFold {
  readonly operands: readonly Operand[];
  /** The value is complete. */
  readonly final: boolean;
  /** False for a copy of bytes, which no arithmetic touches. */
  readonly reduces: boolean;
  /** Output chunks that get the result; empty for one that only other folds use. */
  readonly targets: readonly Place[];
}

/** Groups of folds. Folds of one group use each other's results, and follow those that they use; groups are separate. */
export interface FusedPlan {
  readonly groups: readonly (readonly FusedFold[])[];
  /** True when the folds may run in this order with outputs lying on inputs. */
  readonly inPlaceSafe: boolean;
  /** True when, even then, the groups may run in any order, or at once. */
  readonly independent: boolean;
}

/**
 * The folds of a program that the verifier has accepted.
 *
 * @throws UnsupportedError for a program of more steps than the limit.
 */
export function fuse(program: Program): FusedPlan {
  assertProgram("fuse", program);
  assertFusible(program, stepCount(program));
  return fuseExecution(program, execute(program, false));
}

/** The folds of an executed program. */
function fuseExecution(program: Program, execution: Execution): FusedPlan {
  const groups = [...groupsOf(execution)];
  return { groups, ...inPlaceOrder(program, groups) };
}

/** Differences between the values of a program and those of its folds; empty when the fusion is right. */
export function proveFusion(program: Program, plan: FusedPlan): Problem[] {
  assertProgram("proveFusion", program);
  const isPlan = Array.isArray(plan?.groups);
  assertArgument(isPlan, "proveFusion", "plan", plan, "folds, as fuse gives them");
  return proveGroups(plan.groups, execute(program, false));
}

/** Fuses an executed program and proves it group by group, so that no group stays in memory. */
export function proveFused(execution: Execution): Problem[] {
  return proveGroups(groupsOf(execution), execution);
}

function proveGroups(
  groups: Iterable<readonly FusedFold[]>,
  { values, outputs }: Execution,
): Problem[] {
  const problems: Problem[] = [];
  const starts = startsOf(outputs);
  const chunks = starts.at(-1) as number;
  const covered = new Uint8Array(chunks);
  let found = 0;
  for (const group of groups) {
    const results: ValueId[] = [];
    for (const fold of group) {
      const value = foldedValue(fold, results, values);
      results.push(value);
      for (const { rank, chunk } of fold.targets) {
        const needed = outputs[rank]?.[chunk] ?? none;
        const at = (starts[rank] ?? chunks) + chunk;
        if (covered[at] === 0) {
          covered[at] = 1;
          found++;
        }
        if (needed === value && value !== none) continue;
        const text = `out[${chunk}] of rank ${rank}: the program gives ${values.hash(needed)}, the fold ${values.hash(value)}`;
        problems.push({ pass: "fusion", text });
      }
    }
  }
  if (found !== chunks) {
    problems.push({ pass: "fusion", text: `${found} of ${chunks} output chunks are covered` });
  }
  return problems;
}

/** The value that a fold computes; -1 when its operands cannot be folded. */
function foldedValue(fold: FusedFold, results: readonly ValueId[], values: ValueTable): ValueId {
  let value: ValueId | undefined;
  for (const operand of fold.operands) {
    const next = operandValue(operand, results, values);
    if (next === none) return none;
    if (value === undefined) {
      value = fold.reduces ? values.partial(next) : next;
      continue;
    }
    const folded = values.fold(value, next);
    if (typeof folded === "object") return none;
    value = folded;
  }
  if (value === undefined) return none;
  return fold.final ? values.final(value) : value;
}

function operandValue(operand: Operand, results: readonly ValueId[], values: ValueTable): ValueId {
  if (operand.kind === "fold") return results[operand.fold] ?? none;
  const leaf = values.leaf(operand.place.rank, operand.place.chunk);
  return operand.kind === "partial" ? values.partial(leaf) : leaf;
}

/** The folds of an execution, by group: one group for each value that an output holds, in the order of the outputs. */
function* groupsOf({ values, outputs }: Execution): Generator<FusedFold[]> {
  const reader = new FoldReader(values);
  const targets = new Targets(values.size, outputs);
  for (let rank = 0; rank < outputs.length; rank++) {
    const chunks = outputs[rank] as Int32Array;
    for (let chunk = 0; chunk < chunks.length; chunk++) {
      const value = chunks[chunk] as ValueId;
      const places = targets.from(value, rank, chunk);
      if (places !== undefined) yield reader.group(value, places);
    }
  }
}

/** Index of chunk 0 of each rank when all chunks lie in a row; the last entry is the number of chunks. */
function startsOf(outputs: readonly Int32Array[]): Int32Array {
  const starts = new Int32Array(outputs.length + 1);
  for (let rank = 0; rank < outputs.length; rank++) {
    starts[rank + 1] = (starts[rank] as number) + (outputs[rank] as Int32Array).length;
  }
  return starts;
}

/** The output chunks that hold each value. */
class Targets {
  /** The first place of each value, and for each place the next one of the same value; -1 for none. */
  readonly #first: Int32Array;
  readonly #next: Int32Array;
  readonly #starts: Int32Array;
  readonly #ranks: Int32Array;

  constructor(values: number, outputs: readonly Int32Array[]) {
    this.#starts = startsOf(outputs);
    this.#first = new Int32Array(values).fill(none);
    this.#next = new Int32Array(this.#starts.at(-1) ?? 0);
    this.#ranks = new Int32Array(this.#next.length);
    // Backwards, so that the list of each value starts at its first place.
    for (let rank = outputs.length - 1; rank >= 0; rank--) {
      const chunks = outputs[rank] as Int32Array;
      const start = this.#starts[rank] as number;
      this.#ranks.fill(rank, start, start + chunks.length);
      for (let chunk = chunks.length - 1; chunk >= 0; chunk--) {
        const value = chunks[chunk] as ValueId;
        if (value < 0) continue;
        this.#next[start + chunk] = this.#first[value] as number;
        this.#first[value] = start + chunk;
      }
    }
  }

  /** All places that hold a value, where this is the first of them. */
  from(value: ValueId, rank: number, chunk: number): Place[] | undefined {
    if (value < 0 || this.#first[value] !== (this.#starts[rank] as number) + chunk)
      return undefined;
    const places: Place[] = [];
    for (let at = this.#first[value] as number; at !== none; at = this.#next[at] as number) {
      const owner = this.#ranks[at] as number;
      places.push({ rank: owner, chunk: at - (this.#starts[owner] as number) });
    }
    return places;
  }
}

/** Reads folds off values. */
class FoldReader {
  readonly #values: ValueTable;
  /** Index of each value in the current group; -1 for none. */
  readonly #placed: Int32Array;
  /** Values that have an index, and their number. */
  readonly #emitted: ValueId[] = [];
  #emittedCount = 0;

  constructor(values: ValueTable) {
    this.#values = values;
    this.#placed = new Int32Array(values.size).fill(none);
  }

  /** The fold of a value, after those that it uses. */
  group(value: ValueId, targets: readonly Place[]): FusedFold[] {
    const group: FusedFold[] = [];
    this.#emit(value, targets, group);
    while (this.#emittedCount > 0) {
      this.#placed[this.#emitted[--this.#emittedCount] as ValueId] = none;
    }
    return group;
  }

  /** Appends the fold of a value, after those that it uses, and returns its index in the group. */
  #emit(value: ValueId, targets: readonly Place[], group: FusedFold[]): number {
    const known = this.#placed[value] as number;
    if (known !== none) return known;
    const final = this.#values.isFinal(value);
    const body = final ? this.#values.leftOf(value) : value;
    const operands = this.#chain(body, group);
    const reduces = !this.#values.isLeaf(body);
    const place = group.push({ operands, final, reduces, targets }) - 1;
    this.#placed[value] = place;
    this.#emitted[this.#emittedCount++] = value;
    return place;
  }

  /** Follows a fold down its chain to its first operand: the deeper side of each fold goes first. */
  #chain(value: ValueId, group: FusedFold[]): Operand[] {
    const later: ValueId[] = [];
    let at = value;
    while (this.#values.isFold(at)) {
      const left = this.#values.leftOf(at);
      const right = this.#values.rightOf(at);
      const leftFirst = this.#depth(left) >= this.#depth(right);
      later.push(leftFirst ? right : left);
      at = leftFirst ? left : right;
    }
    const operands = [this.#operand(at, true, group)];
    for (let i = later.length - 1; i >= 0; i--) {
      operands.push(this.#operand(later[i] as ValueId, false, group));
    }
    return operands;
  }

  #operand(value: ValueId, first: boolean, group: FusedFold[]): Operand {
    const values = this.#values;
    if (values.isFold(value) || values.isFinal(value)) {
      return { kind: "fold", fold: this.#emit(value, [], group) };
    }
    // A rank's chunk, directly or as a partial.
    const alone = values.isLeaf(value);
    const leaf = alone ? value : values.leftOf(value);
    const place = { rank: values.leftOf(leaf), chunk: values.chunkOf(leaf) };
    return { kind: alone || first ? "contribution" : "partial", place };
  }

  /** A fold is deeper than a partial of one rank, and that is deeper than a bare contribution. */
  #depth(value: ValueId): number {
    if (this.#values.isFold(value)) return 2;
    return this.#values.isLeaf(value) || this.#values.isFinal(value) ? 0 : 1;
  }
}

/** Checks folds that write an output on top of an input that another fold reads: later in this order, or at all. */
function inPlaceOrder(
  program: Program,
  groups: readonly (readonly FusedFold[])[],
): Pick<FusedPlan, "inPlaceSafe" | "independent"> {
  const covered = coveredInputs(program);
  /** By rank and input chunk: the group that writes there, and the one that reads; `none` for several readers. */
  const writers = chunksOf(program, absent);
  const readers = chunksOf(program, absent);
  let inPlaceSafe = true;
  let independent = true;
  groups.forEach((group, number) => {
    for (const { operands, targets } of group) {
      for (const operand of operands) {
        if (operand.kind === "fold") continue;
        const { rank, chunk } = operand.place;
        if ((writers[rank]?.[chunk] ?? absent) !== absent) inPlaceSafe = false;
        const reading = readers[rank] as Int32Array;
        const reader = reading[chunk] as number;
        // With several readers, a writer always differs from one of them.
        reading[chunk] = reader === absent || reader === number ? number : none;
      }
      for (const { rank, chunk } of targets) {
        const under = covered[rank]?.[chunk] ?? none;
        if (under !== none) (writers[rank] as Int32Array)[under] = number;
      }
    }
  });
  writers.forEach((written, rank) => {
    const read = readers[rank] as Int32Array;
    for (let chunk = 0; chunk < written.length; chunk++) {
      const writer = written[chunk];
      const reader = read[chunk];
      if (writer !== absent && reader !== absent && reader !== writer) independent = false;
    }
  });
  return { inPlaceSafe, independent };
}

/** No group. */
const absent = -2;

/** A number for every input chunk, by rank. */
function chunksOf(
  { collective, ranks, root, chunksPerBlock }: Program,
  value: number,
): Int32Array[] {
  const { inBlocks } = specifications[collective];
  return Array.from({ length: ranks }, (_, rank) =>
    new Int32Array(inBlocks(ranks, rank, root) * chunksPerBlock).fill(value),
  );
}
