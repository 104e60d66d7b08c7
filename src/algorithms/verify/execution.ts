/**
 * Runs a program on values instead of numbers, for all lanes at once, and notes everything that is wrong with it.
 *
 * Channels between lanes are unbounded here; whether a bounded one could deadlock is `credits.ts`'s question. Since
 * every receive names its sender, the outcome does not depend on which lane goes first.
 */
import { specifications } from "../../api/collectives/index.ts";
import { coveredInputs } from "../in-place.ts";
import { bufferOf, chunkOf, none, type Program, type Step, stepAt, stepText } from "../program.ts";
import { type ValueId, ValueTable } from "./values.ts";

/** Something wrong with a program. */
export interface Problem {
  readonly pass: "match" | "contribution" | "hazard" | "deadlock" | "cost" | "fusion";
  readonly text: string;
}

/** What a program leaves behind. */
export interface Execution {
  readonly values: ValueTable;
  /** Value of every output chunk, by rank and chunk; -1 where nothing was written. */
  readonly outputs: readonly Int32Array[];
  readonly problems: readonly Problem[];
}

interface Message {
  readonly values: readonly ValueId[];
  /** Ranks whose start the sender has heard of. */
  readonly heard: bigint;
}

/** Runs a program symbolically; `inPlace` lets output chunks lie on the input chunks that the collective allows. */
export function execute(
  program: Program,
  inPlace: boolean,
  values: ValueTable = new ValueTable(),
): Execution {
  return new Machine(program, inPlace, values).run();
}

class Machine {
  readonly #program: Program;
  readonly #values: ValueTable;
  readonly #problems: Problem[] = [];
  readonly #reduces: boolean;
  readonly #synchronises: boolean;
  /** By buffer (in, out, scratch), rank and chunk. */
  readonly #cells: readonly (readonly Int32Array[])[];
  /** Input chunks that lie where an output chunk lies, by rank: input chunk of each output chunk, -1 for none. */
  readonly #under: readonly Int32Array[] | undefined;
  readonly #queues = new Map<number, Message[]>();
  readonly #waiting = new Map<number, number>();
  readonly #heard: bigint[];
  readonly #at: Int32Array;
  readonly #ready: number[] = [];

  constructor(program: Program, inPlace: boolean, values: ValueTable) {
    this.#program = program;
    this.#values = values;
    const { collective, ranks, root, chunksPerBlock, scratchChunks, channels } = program;
    const spec = specifications[collective];
    this.#reduces = spec.reduces;
    this.#synchronises = spec.synchronises;
    const cells = (blocks: (rank: number) => number): Int32Array[] =>
      Array.from({ length: ranks }, (_, rank) => new Int32Array(blocks(rank)).fill(none));
    const inCells = cells((rank) => spec.inBlocks(ranks, rank, root) * chunksPerBlock);
    inCells.forEach((chunks, rank) => {
      chunks.forEach((_, chunk) => {
        chunks[chunk] = values.leaf(rank, chunk);
      });
    });
    const outCells = cells((rank) => spec.outBlocks(ranks, rank, root) * chunksPerBlock);
    this.#cells = [inCells, outCells, cells(() => scratchChunks)];
    this.#under = inPlace ? coveredInputs(program) : undefined;
    this.#heard = Array.from({ length: ranks }, (_, rank) => 1n << BigInt(rank));
    this.#at = program.starts.slice(0, ranks * channels);
  }

  run(): Execution {
    const lanes = this.#at.length;
    for (let lane = lanes - 1; lane >= 0; lane--) this.#ready.push(lane);
    for (let lane = this.#ready.pop(); lane !== undefined; lane = this.#ready.pop()) {
      this.#advance(lane);
    }
    this.#reportLeftovers();
    if (this.#synchronises) this.#reportEarlyLeavers();
    return { values: this.#values, outputs: this.#cells[1] ?? [], problems: this.#problems };
  }

  /** Runs a lane until it ends or waits for a message. */
  #advance(lane: number): void {
    const end = this.#program.starts[lane + 1] as number;
    while ((this.#at[lane] as number) < end) {
      const step = stepAt(this.#program, this.#at[lane] as number);
      if (!this.#perform(lane, step)) return;
      this.#at[lane] = (this.#at[lane] as number) + 1;
    }
  }

  /** One step; false when it has to wait. */
  #perform(lane: number, step: Step): boolean {
    const rank = Math.floor(lane / this.#program.channels);
    let message: Message | undefined;
    if (step.from !== none) {
      message = this.#receive(lane, rank, step);
      if (message === undefined) return false;
      this.#heard[rank] = (this.#heard[rank] as bigint) | message.heard;
      if (message.values.length !== step.span) {
        this.#problem(
          "match",
          rank,
          step,
          `receives ${message.values.length} chunks, expects ${step.span}`,
        );
        return true;
      }
    }
    const taken: ValueId[] = [];
    for (let i = 0; i < step.span; i++) taken.push(this.#take(rank, step, i, message));
    if (step.write !== none) {
      for (const [i, value] of taken.entries()) this.#write(rank, step, i, value);
    }
    if (step.to !== none) this.#send(lane, step.to, taken);
    return true;
  }

  #receive(lane: number, rank: number, step: Step): Message | undefined {
    const key = this.#queueKey(step.from, rank, lane);
    const message = this.#queues.get(key)?.shift();
    if (message === undefined) this.#waiting.set(key, lane);
    return message;
  }

  #send(lane: number, to: number, values: readonly ValueId[]): void {
    const rank = Math.floor(lane / this.#program.channels);
    const key = this.#queueKey(rank, to, lane);
    const queue = this.#queues.get(key) ?? [];
    queue.push({ values, heard: this.#heard[rank] as bigint });
    this.#queues.set(key, queue);
    const waiter = this.#waiting.get(key);
    if (waiter === undefined) return;
    this.#waiting.delete(key);
    this.#ready.push(waiter);
  }

  #queueKey(from: number, to: number, lane: number): number {
    const { ranks, channels } = this.#program;
    return ((lane % channels) * ranks + from) * ranks + to;
  }

  /** The value that chunk `i` of a step puts on its way. */
  #take(rank: number, step: Step, i: number, message: Message | undefined): ValueId {
    const received = message?.values[i];
    const read = step.read === none ? undefined : this.#read(rank, step, step.read, i);
    const other = step.other === none ? undefined : this.#read(rank, step, step.other, i);
    const operands = [received, read, other].filter(
      (value): value is ValueId => value !== undefined,
    );
    const [first, second] = operands;
    if (first === undefined) return none;
    const values = this.#values;
    let value = first;
    if (second !== undefined) {
      // A lone contribution becomes a partial before it is folded with another contribution.
      const folded = values.fold(values.isLeaf(second) ? values.partial(first) : first, second);
      if (typeof folded === "object") {
        this.#problem("contribution", rank, step, folded.fault);
        return first;
      }
      value = folded;
    } else if (this.#reduces) value = values.partial(first);
    return step.final ? values.final(value) : value;
  }

  #read(rank: number, step: Step, ref: number, i: number): ValueId | undefined {
    const cells = this.#cells[bufferOf(ref)]?.[rank];
    const chunk = chunkOf(ref) + i;
    const value = cells?.[chunk];
    if (value === undefined) {
      this.#problem("hazard", rank, step, `reads chunk ${chunk}, which this rank does not have`);
    } else if (value === none) {
      this.#problem(
        "hazard",
        rank,
        step,
        `reads chunk ${chunk} before it was written, or after it was overwritten`,
      );
    } else return value;
    return undefined;
  }

  #write(rank: number, step: Step, i: number, value: ValueId): void {
    const buffer = bufferOf(step.write);
    const cells = this.#cells[buffer]?.[rank];
    const chunk = chunkOf(step.write) + i;
    if (buffer === 0 || cells === undefined || chunk >= cells.length) {
      this.#problem(
        "hazard",
        rank,
        step,
        `writes chunk ${chunk}, which is none of its outputs or scratch`,
      );
      return;
    }
    cells[chunk] = value;
    const covered = buffer === 1 ? this.#under?.[rank]?.[chunk] : undefined;
    const inputs = this.#cells[0]?.[rank];
    if (covered !== undefined && covered !== none && inputs !== undefined) inputs[covered] = none;
  }

  #reportLeftovers(): void {
    const { starts, channels } = this.#program;
    this.#at.forEach((at, lane) => {
      if (at >= (starts[lane + 1] as number)) return;
      const rank = Math.floor(lane / channels);
      this.#problem(
        "match",
        rank,
        stepAt(this.#program, at),
        "waits for a message that is never sent",
      );
    });
    const left = [...this.#queues.values()].reduce((sum, queue) => sum + queue.length, 0);
    if (left > 0) {
      this.#problems.push({ pass: "match", text: `${left} messages are sent and never received` });
    }
  }

  #reportEarlyLeavers(): void {
    const everyone = (1n << BigInt(this.#program.ranks)) - 1n;
    this.#heard.forEach((heard, rank) => {
      if (heard === everyone) return;
      const text = `rank ${rank} may leave before every rank has entered`;
      this.#problems.push({ pass: "contribution", text });
    });
  }

  #problem(pass: Problem["pass"], rank: number, step: Step, text: string): void {
    this.#problems.push({ pass, text: `rank ${rank} (${stepText(step)}): ${text}` });
  }
}
