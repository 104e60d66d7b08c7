/**
 * Runs a program on values instead of numbers, for all lanes at once, and notes everything that is wrong with it.
 *
 * Channels between lanes are unbounded here; whether a bounded one could deadlock is `credits.ts`'s question. Since
 * every receive names its sender, the outcome does not depend on which lane goes first; that lanes of one rank keep out
 * of each other's way is `lane-hazards.ts`'s.
 */
import { specifications } from "../../api/collectives/index.ts";
import { coveredInputs } from "../in-place.ts";
import {
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
import { Lengths } from "./lengths.ts";
import { type Matching, matchSteps } from "./matching.ts";
import type { Problem } from "./problem.ts";
import { type ValueId, ValueTable } from "./values.ts";

export type { Problem } from "./problem.ts";

/** What a program leaves behind. */
export interface Execution {
  readonly values: ValueTable;
  /** Value of every output chunk, by rank and chunk; -1 where nothing was written. */
  readonly outputs: readonly Int32Array[];
  /** Values that a step (over all lanes) stores or sends, one for each chunk of its span; -1 for what is missing. */
  made(step: number): Int32Array;
  /** Values of the message that a step receives; none for a step that receives nothing. */
  received(step: number): Int32Array;
  readonly problems: readonly Problem[];
}

/** Runs a program symbolically; `inPlace` lets output chunks lie on the input chunks that the collective allows. */
export function execute(
  program: Program,
  inPlace: boolean,
  values: ValueTable = new ValueTable(program.ranks),
): Execution {
  return executeMatched(program, matchSteps(program), inPlace, values);
}

/** The same for a program whose sends and receives are matched already. */
export function executeMatched(
  program: Program,
  matching: Matching,
  inPlace: boolean,
  values: ValueTable,
): Execution {
  return new Machine(program, matching, inPlace, values).run();
}

class Machine {
  readonly #program: Program;
  readonly #matching: Matching;
  readonly #values: ValueTable;
  readonly #problems: Problem[];
  readonly #reduces: boolean;
  readonly #lengths: Lengths;
  /** By buffer (in, out, scratch), rank and chunk. */
  readonly #cells: readonly (readonly Int32Array[])[];
  /** Input chunks that lie where an output chunk lies, by rank: input chunk of each output chunk, -1 for none. */
  readonly #under: readonly Int32Array[] | undefined;
  /** Values that steps store or send; `#madeAt` says where those of a step begin. */
  readonly #made: Int32Array;
  readonly #madeAt: Int32Array;
  /** The rank and step at hand. */
  #rank = 0;
  #step = 0;

  constructor(program: Program, matching: Matching, inPlace: boolean, values: ValueTable) {
    this.#program = program;
    this.#matching = matching;
    this.#values = values;
    this.#problems = [...matching.problems];
    const { collective, ranks, root, chunksPerBlock, scratchChunks, code } = program;
    const spec = specifications[collective];
    this.#reduces = spec.reduces;
    this.#lengths = new Lengths(program, values);
    const cells = (blocks: (rank: number) => number): Int32Array[] =>
      Array.from({ length: ranks }, (_, rank) => new Int32Array(blocks(rank)).fill(none));
    const inCells = cells((rank) => spec.inBlocks(ranks, rank, root) * chunksPerBlock);
    inCells.forEach((chunks, rank) => {
      for (let chunk = 0; chunk < chunks.length; chunk++) chunks[chunk] = values.leaf(rank, chunk);
    });
    const outCells = cells((rank) => spec.outBlocks(ranks, rank, root) * chunksPerBlock);
    this.#cells = [inCells, outCells, cells(() => scratchChunks)];
    this.#under = inPlace ? coveredInputs(program) : undefined;
    const steps = code.length / stepWidth;
    this.#madeAt = new Int32Array(steps + 1);
    let length = 0;
    for (let step = 0; step < steps; step++) {
      length += code[step * stepWidth + column.span] as number;
      this.#madeAt[step + 1] = length;
    }
    this.#made = new Int32Array(length).fill(none);
  }

  run(): Execution {
    const { order, lane } = this.#matching;
    const { channels, collective } = this.#program;
    for (const step of order) {
      this.#step = step;
      this.#rank =
        channels === 1 ? (lane[step] as number) : Math.floor((lane[step] as number) / channels);
      this.#perform();
    }
    if (specifications[collective].synchronises) this.#reportEarlyLeavers();
    const made = (step: number): Int32Array =>
      this.#made.subarray(this.#madeAt[step], this.#madeAt[step + 1]);
    const { sender } = this.#matching;
    const received = (step: number): Int32Array => {
      const from = sender[step] ?? none;
      return from === none ? new Int32Array() : made(from);
    };
    const outputs = this.#cells[1] ?? [];
    return { values: this.#values, outputs, made, received, problems: this.#problems };
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
    // Of a message of another length, which is reported already, nothing can be taken.
    const fits = sender !== none && code[sender * stepWidth + column.span] === span;
    const receivedAt = fits ? (this.#madeAt[sender] as number) : none;
    const madeAt = this.#madeAt[step] as number;
    if (write !== none && read !== none) this.#checkOverlap(read, write, span);
    for (let i = 0; i < span; i++) {
      let value = receivedAt === none ? none : (this.#made[receivedAt + i] as number);
      let operands = code[at + column.from] === none ? 0 : 1;
      if (read !== none) value = this.#operand(operands++, value, this.#read(read, i));
      if (other !== none) value = this.#operand(operands++, value, this.#read(other, i));
      value = this.#completed(value, operands, final);
      if (write !== none) this.#write(write, i, value);
      this.#made[madeAt + i] = value;
    }
  }

  /** The value so far together with the next operand; -1 when one of them is missing, which is reported already. */
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

  /** The value that goes on its way. */
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
    const chunk = chunkOf(ref) + i;
    const value = this.#cells[bufferOf(ref)]?.[this.#rank]?.[chunk];
    if (value === undefined) {
      this.#problem("hazard", `reads chunk ${chunk}, which this rank does not have`);
      return none;
    }
    if (value === none) {
      this.#problem(
        "hazard",
        `reads chunk ${chunk} before it was written, or after it was overwritten`,
      );
    }
    return value;
  }

  #write(ref: Ref, i: number, value: ValueId): void {
    const buffer = bufferOf(ref);
    const cells = this.#cells[buffer]?.[this.#rank];
    const chunk = chunkOf(ref) + i;
    if (buffer === 0 || cells === undefined || chunk < 0 || chunk >= cells.length) {
      this.#problem("hazard", `writes chunk ${chunk}, which is none of its outputs or scratch`);
      return;
    }
    if (value !== none && !this.#lengths.fits(value, buffer, this.#rank, chunk)) {
      this.#problem("hazard", `writes chunk ${chunk}, which may have another length`);
    }
    cells[chunk] = value;
    const covered = buffer === 1 ? this.#under?.[this.#rank]?.[chunk] : undefined;
    const inputs = this.#cells[0]?.[this.#rank];
    if (covered !== undefined && covered !== none && inputs !== undefined) inputs[covered] = none;
  }

  /** Chunks of a step are moved in any order, or at once, so none may be written that another one is read from. */
  #checkOverlap(read: Ref, write: Ref, span: number): void {
    const apart = Math.abs(chunkOf(write) - chunkOf(read));
    if (bufferOf(read) !== bufferOf(write) || apart === 0 || apart >= span) return;
    this.#problem("hazard", "writes chunks that it reads other chunks from");
  }

  /** No rank may leave before it has heard, directly or not, that every rank has entered. */
  #reportEarlyLeavers(): void {
    const { ranks, channels } = this.#program;
    const { order, lane, sender, receiver } = this.#matching;
    const heard = Array.from({ length: ranks }, (_, rank) => 1n << BigInt(rank));
    const told = new Map<number, bigint>();
    for (const step of order) {
      const rank = Math.floor((lane[step] as number) / channels);
      const news = told.get(sender[step] as number) ?? 0n;
      heard[rank] = (heard[rank] as bigint) | news;
      if (receiver[step] !== none) told.set(step, heard[rank] as bigint);
    }
    const everyone = (1n << BigInt(ranks)) - 1n;
    heard.forEach((set, rank) => {
      if (set === everyone) return;
      const text = `rank ${rank} may leave before every rank has entered`;
      this.#problems.push({ pass: "contribution", text });
    });
  }

  #problem(pass: Problem["pass"], text: string): void {
    const step = stepText(stepAt(this.#program, this.#step));
    this.#problems.push({ pass, text: `rank ${this.#rank} (${step}): ${text}` });
  }
}
