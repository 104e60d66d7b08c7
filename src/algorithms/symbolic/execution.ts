/**
 * Symbolic execution: runs a program on values instead of numbers, for all lanes at once, and collects its problems.
 *
 * Channels between lanes are unbounded here; `verify/credits.ts` checks bounded ones for deadlocks. Every receive names its
 * sender, so the result does not depend on the order of lanes; `verify/lane-hazards.ts` checks races between lanes of one rank.
 */
import { hasUnevenBlocks } from "../../api/collectives/call-layout.ts";
import { specifications } from "../../api/collectives/index.ts";
import { assertArgument } from "../arguments.ts";
import { coveredInputs } from "../layout.ts";
import {
  assertProgram,
  bufferOf,
  chunkOf,
  column,
  none,
  type Program,
  type Ref,
  stepAt,
  stepText,
  stepWidth,
} from "../program.ts";
import { type Matching, matchSteps, type Problem } from "./matching.ts";
import { type ValueId, ValueTable } from "./values.ts";

/** The result of a symbolic execution. */
export interface Execution {
  readonly values: ValueTable;
  /** Value of every output chunk, by rank and chunk; -1 where nothing was written. */
  readonly outputs: readonly Int32Array[];
  /** True when an input is read after an output that lies on it in place was written; else in place gives the same values. */
  readonly readsCovered: boolean;
  /** Values that a step (over all lanes) stores or sends, one for each chunk of its span; -1 for a missing one. */
  stepValues(step: number): Int32Array;
  /** Values of the message that a step receives; none for a step that receives nothing. */
  received(step: number): Int32Array;
  readonly problems: readonly Problem[];
}

/** Runs a program symbolically; `inPlace` lets output chunks lie on the input chunks that the collective allows. */
export function execute(program: Program, inPlace: boolean): Execution {
  assertProgram("execute", program);
  assertArgument(typeof inPlace === "boolean", "execute", "inPlace", inPlace, "true or false");
  return executeMatched(program, matchSteps(program), inPlace);
}

/** The same for a program with matched sends and receives. */
export function executeMatched(
  program: Program,
  matching: Matching,
  inPlace: boolean,
  values: ValueTable = tableFor(program),
): Execution {
  return new Machine(program, matching, inPlace, values).run();
}

class Machine {
  readonly #program: Program;
  readonly #matching: Matching;
  readonly #inPlace: boolean;
  readonly #values: ValueTable;
  readonly #problems: Problem[];
  readonly #reduces: boolean;
  readonly #lengths: Lengths;
  /** Values of all chunks: buffer by buffer (in, out, scratch), rank by rank. `#starts` has the first cell of each. */
  readonly #cells: Int32Array;
  readonly #starts: Int32Array;
  /** By cell of an output chunk: the cell of the input chunk under it in place; -1 for none. */
  readonly #inputUnderOutput: Int32Array;
  /** By cell: 1 for an input that is overwritten in place. */
  readonly #overwritten: Uint8Array;
  #readsCovered = false;
  /** Values that steps store or send; `#valuesAt` has the first index of each step. */
  readonly #stepValues: Int32Array;
  readonly #valuesAt: Int32Array;
  /** The current rank and step. */
  #rank = 0;
  #step = 0;
  /** First and last cell of the current rank, by buffer. */
  readonly #firstCells = new Int32Array(4);
  readonly #endCells = new Int32Array(4);

  constructor(program: Program, matching: Matching, inPlace: boolean, values: ValueTable) {
    this.#program = program;
    this.#matching = matching;
    this.#inPlace = inPlace;
    this.#values = values;
    this.#problems = [...matching.problems];
    this.#reduces = specifications[program.collective].reduces;
    this.#lengths = new Lengths(program, values);
    this.#starts = cellStarts(program);
    this.#cells = new Int32Array(this.#starts.at(-1) as number).fill(none);
    const { ranks, code } = program;
    for (let rank = 0; rank < ranks; rank++) {
      const start = this.#starts[rank] as number;
      const chunks = (this.#starts[rank + 1] as number) - start;
      for (let chunk = 0; chunk < chunks; chunk++) {
        this.#cells[start + chunk] = values.leaf(rank, chunk);
      }
    }
    this.#overwritten = new Uint8Array(this.#cells.length);
    this.#inputUnderOutput = new Int32Array(this.#cells.length).fill(none);
    coveredInputs(program).forEach((covered, rank) => {
      const over = this.#starts[ranks + rank] as number;
      const start = this.#starts[rank] as number;
      for (let chunk = 0; chunk < covered.length; chunk++) {
        const input = covered[chunk] as number;
        if (input !== none) this.#inputUnderOutput[over + chunk] = start + input;
      }
    });
    const steps = code.length / stepWidth;
    this.#valuesAt = new Int32Array(steps + 1);
    let length = 0;
    for (let step = 0; step < steps; step++) {
      length += code[step * stepWidth + column.span] as number;
      this.#valuesAt[step + 1] = length;
    }
    this.#stepValues = new Int32Array(length).fill(none);
  }

  run(): Execution {
    const { order, lane } = this.#matching;
    const { ranks, channels, collective } = this.#program;
    for (let i = 0; i < order.length; i++) {
      const step = order[i] as number;
      const on = lane[step] as number;
      this.#step = step;
      const rank = channels === 1 ? on : Math.floor(on / channels);
      if (rank !== this.#rank || i === 0) this.#selectRank(rank);
      this.#perform();
    }
    if (specifications[collective].synchronises) this.#reportEarlyExits();
    const stepValues = (step: number): Int32Array =>
      this.#stepValues.subarray(this.#valuesAt[step], this.#valuesAt[step + 1]);
    const { sender } = this.#matching;
    const received = (step: number): Int32Array => {
      const from = sender[step] ?? none;
      return from === none ? new Int32Array() : stepValues(from);
    };
    const outputs = Array.from({ length: ranks }, (_, rank) =>
      this.#cells.subarray(this.#starts[ranks + rank], this.#starts[ranks + rank + 1]),
    );
    const readsCovered = this.#readsCovered;
    const problems = this.#problems;
    return { values: this.#values, outputs, readsCovered, stepValues, received, problems };
  }

  /** Makes a rank the current one. */
  #selectRank(rank: number): void {
    this.#rank = rank;
    for (let buffer = 0; buffer < 3; buffer++) {
      const row = buffer * this.#program.ranks + rank;
      this.#firstCells[buffer] = this.#starts[row] as number;
      this.#endCells[buffer] = this.#starts[row + 1] as number;
    }
  }

  #perform(): void {
    const { code } = this.#program;
    const step = this.#step;
    const at = step * stepWidth;
    const read = code[at + column.read] as Ref;
    const other = code[at + column.other] as Ref;
    const write = code[at + column.write] as Ref;
    const span = code[at + column.span] as number;
    const final = code[at + column.final] === 1;
    const sender = this.#matching.sender[step] as number;
    // A message of another length is reported by the matching; its values are ignored.
    const fits = sender !== none && code[sender * stepWidth + column.span] === span;
    const receivedAt = fits ? (this.#valuesAt[sender] as number) : none;
    const madeAt = this.#valuesAt[step] as number;
    if (write !== none && read !== none && span > 1) this.#checkOverlap(read, write, span);
    const received = code[at + column.from] === none ? 0 : 1;
    for (let i = 0; i < span; i++) {
      let value = receivedAt === none ? none : (this.#stepValues[receivedAt + i] as number);
      let operands = received;
      if (read !== none) value = this.#operand(operands++, value, this.#read(read, i));
      if (other !== none) value = this.#operand(operands++, value, this.#read(other, i));
      value = this.#completed(value, operands, final);
      if (write !== none) this.#write(write, i, value);
      this.#stepValues[madeAt + i] = value;
    }
  }

  /** The value so far, folded with the next operand; -1 when one of them is missing, which is reported elsewhere. */
  #operand(before: number, value: ValueId, next: ValueId): ValueId {
    if (before === 0) return next;
    if (value === none || next === none) return none;
    const values = this.#values;
    // A lone contribution becomes a partial before it is folded with another contribution.
    const folded = values.fold(values.isLeaf(next) ? values.partial(value) : value, next);
    if (typeof folded === "number") return folded;
    this.#problem("contribution", folded.fault);
    return value;
  }

  /** The value that a step stores or sends. */
  #completed(value: ValueId, operands: number, final: boolean): ValueId {
    if (operands === 0) this.#problem("hazard", "takes nothing, neither from a peer nor a chunk");
    if (value === none) return none;
    const values = this.#values;
    const whole = this.#reduces && operands === 1 ? values.partial(value) : value;
    if (!final) return whole;
    if (values.isFinal(whole)) this.#problem("contribution", "completes a complete value again");
    return values.final(whole);
  }

  #read(ref: Ref, i: number): ValueId {
    const cell = this.#cell(ref, i);
    if (cell === none) {
      const chunk = chunkOf(ref) + i;
      this.#problem("hazard", `reads chunk ${chunk}, which this rank does not have`);
      return none;
    }
    const isOverwritten = this.#overwritten[cell] === 1;
    if (isOverwritten) this.#readsCovered = true;
    const value = this.#cells[cell] as ValueId;
    if (value === none) {
      const when = isOverwritten
        ? "after it was overwritten: in place, an output is the same memory"
        : "before it was written";
      this.#problem("hazard", `reads chunk ${chunkOf(ref) + i} ${when}`);
    }
    return value;
  }

  #write(ref: Ref, i: number, value: ValueId): void {
    const buffer = bufferOf(ref);
    const chunk = chunkOf(ref) + i;
    const cell = buffer === 0 ? none : this.#cell(ref, i);
    if (cell === none) {
      this.#problem("hazard", `writes chunk ${chunk}, which is none of its outputs or scratch`);
      return;
    }
    if (value !== none && !this.#lengths.fits(value, buffer, this.#rank, chunk)) {
      this.#problem("hazard", `writes chunk ${chunk}, which may have another length`);
    }
    this.#cells[cell] = value;
    const covered = this.#inputUnderOutput[cell] as number;
    if (covered === none) return;
    this.#overwritten[covered] = 1;
    if (this.#inPlace) this.#cells[covered] = none;
  }

  /** The cell of a chunk of the current rank; -1 for a chunk that it does not have. */
  #cell(ref: Ref, i: number): number {
    const chunk = chunkOf(ref) + i;
    const buffer = bufferOf(ref);
    const cell = (this.#firstCells[buffer] as number) + chunk;
    // A buffer that does not exist has no cells.
    return chunk >= 0 && cell < (this.#endCells[buffer] as number) ? cell : none;
  }

  /** The chunks of a step are moved in any order, or at once, so written and read ranges must not overlap. */
  #checkOverlap(read: Ref, write: Ref, span: number): void {
    const apart = Math.abs(chunkOf(write) - chunkOf(read));
    if (bufferOf(read) !== bufferOf(write) || apart === 0 || apart >= span) return;
    this.#problem("hazard", "writes chunks that it reads other chunks from");
  }

  /** A rank may leave only after a message, directly or not, from every rank that has entered. */
  #reportEarlyExits(): void {
    const { ranks, channels } = this.#program;
    const { order, lane, sender, receiver } = this.#matching;
    const reached = Array.from({ length: ranks }, (_, rank) => 1n << BigInt(rank));
    const sent = new Map<number, bigint>();
    for (const step of order) {
      const rank = Math.floor((lane[step] as number) / channels);
      const received = sent.get(sender[step] as number) ?? 0n;
      reached[rank] = (reached[rank] as bigint) | received;
      if (receiver[step] !== none) sent.set(step, reached[rank] as bigint);
    }
    const allRanks = (1n << BigInt(ranks)) - 1n;
    reached.forEach((set, rank) => {
      if (set === allRanks) return;
      const text = `rank ${rank} may leave before every rank has entered`;
      this.#problems.push({ pass: "contribution", text });
    });
  }

  #problem(pass: Problem["pass"], text: string): void {
    const step = stepText(stepAt(this.#program, this.#step));
    this.#problems.push({ pass, text: `rank ${this.#rank} (${step}): ${text}` });
  }
}

/** A table with capacity for the values of a program that folds each contribution once. */
function tableFor({ collective, ranks, root, chunksPerBlock, code }: Program): ValueTable {
  const { inBlocks, reduces } = specifications[collective];
  let inputs = 0;
  let leaves = 0;
  for (let rank = 0; rank < ranks; rank++) {
    const chunks = inBlocks(ranks, rank, root) * chunksPerBlock;
    inputs += chunks;
    leaves = Math.max(leaves, chunks);
  }
  const capacity = { values: reduces ? 2 * inputs + code.length / stepWidth : inputs, leaves };
  return new ValueTable(ranks, capacity);
}

/** First cell of each buffer (in, out, scratch) and rank when all chunks lie in a row, and the number of cells. */
function cellStarts({
  collective,
  ranks,
  root,
  chunksPerBlock,
  scratchChunks,
}: Program): Int32Array {
  const { inBlocks, outBlocks } = specifications[collective];
  const starts = new Int32Array(3 * ranks + 1);
  const append = (buffer: number, chunksOf: (rank: number) => number): void => {
    for (let rank = 0; rank < ranks; rank++) {
      const row = buffer * ranks + rank;
      starts[row + 1] = (starts[row] as number) + chunksOf(rank);
    }
  };
  append(0, (rank) => inBlocks(ranks, rank, root) * chunksPerBlock);
  append(1, (rank) => outBlocks(ranks, rank, root) * chunksPerBlock);
  append(2, () => scratchChunks);
  return starts;
}

/**
 * Compares the lengths of values and chunks of one program, for all counts of a call.
 *
 * Chunks of one block differ in length when the count does not divide evenly; blocks differ in the v-forms and in gather
 * and scatter. A value is as long as its input chunk. Scratch chunks have the lengths of the rank's input chunks, modulo
 * their number.
 */
class Lengths {
  readonly #program: Program;
  readonly #values: ValueTable;
  readonly #chunksPerBlock: number;
  readonly #reduces: boolean;
  readonly #even: boolean;

  constructor(program: Program, values: ValueTable) {
    this.#program = program;
    this.#values = values;
    this.#chunksPerBlock = program.chunksPerBlock;
    this.#reduces = specifications[program.collective].reduces;
    this.#even = !hasUnevenBlocks(program.collective);
  }

  /** True when a value is as long as a chunk of `out` (1) or scratch (2) in every call. */
  fits(value: ValueId, buffer: number, rank: number, chunk: number): boolean {
    const about = this.#values.chunkOf(value);
    const piece = this.#chunksPerBlock;
    if (about !== chunk && (about - chunk) % piece !== 0) return false;
    if (this.#even) return true;
    const source = this.#source(buffer, rank, Math.floor(chunk / piece));
    const from = this.#reduces ? undefined : this.#values.contributors(value);
    return (
      source !== undefined &&
      source.block === Math.floor(about / piece) &&
      (from === undefined || from === source.rank)
    );
  }

  /** The input block that a block of `out` or scratch is as long as. */
  #source(buffer: number, rank: number, block: number) {
    const { collective, ranks, root } = this.#program;
    const spec = specifications[collective];
    if (buffer === 1) return spec.expected(ranks, rank, block, root)[0];
    const blocks = spec.inBlocks(ranks, rank, root);
    return blocks === 0 ? undefined : { rank, block: block % blocks };
  }
}
