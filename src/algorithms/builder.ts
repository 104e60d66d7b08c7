/**
 * Verbs for writing a program so that it reads like the paper.
 *
 * The names are NCCL's primitives. *recv* takes a value from a peer, *reduce* folds it with a local chunk, *copy* stores it,
 * *send* passes it on. They combine in one step, which moves the value through the rank without a detour through memory:
 * `recvReduceSend` stores nothing.
 */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import type { InvalidArgumentError } from "../api/errors.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertArgument, assertCollective, assertInteger, hasFields } from "./arguments.ts";
import { maxSteps, tooManySteps } from "./limits.ts";
import {
  assertIndex,
  column,
  maxChunks,
  none,
  type Program,
  type Ref,
  stepWidth,
} from "./program.ts";

/** Options of a step. */
export interface StepOptions {
  /** All contributions are in: an integer average is divided here. */
  readonly final?: boolean | undefined;
  /** Number of consecutive chunks; 1 when left out. */
  readonly span?: number | undefined;
}

/** Initial capacity of a lane, in steps, where no other lane gives a better guess; it doubles when it is full. */
const firstSteps = 8;

/** Steps that a lane repeats; a brief lane holds the first and the last repetition only. */
export interface Repeat {
  /** Number of its first step. */
  readonly at: number;
  /** Steps of one repetition. */
  readonly length: number;
  readonly times: number;
}

/** Writes the steps of one lane, in order. */
export class Lane {
  readonly rank: number;
  /** The repetitions of a brief lane; `undefined` for a complete one. */
  readonly repeats: Repeat[] | undefined;
  #code: Int32Array;
  #end = 0;
  readonly #chunks: number;
  readonly #onStep: (() => void) | undefined;

  /** `chunks` is the longest span of a step. */
  constructor(
    rank: number,
    chunks: number,
    onStep?: () => void,
    brief = false,
    capacity: number = firstSteps,
  ) {
    this.rank = rank;
    this.#chunks = chunks;
    this.#code = new Int32Array(capacity * stepWidth);
    this.#onStep = onStep;
    this.repeats = brief ? [] : undefined;
  }

  /** Number of steps so far. */
  get length(): number {
    return this.#end / stepWidth;
  }

  /** The steps so far, packed as in `Program.code`. */
  get code(): Int32Array {
    return this.#code.subarray(0, this.#end);
  }

  /** Sends a local chunk. */
  send(read: Ref, to: number, options?: StepOptions): this {
    return this.#step(none, to, read, none, none, options);
  }

  /** Receives into a local chunk. */
  recv(from: number, write: Ref, options?: StepOptions): this {
    return this.#step(from, none, none, none, write, options);
  }

  /** Copies a local chunk. */
  copy(read: Ref, write: Ref, options?: StepOptions): this {
    return this.#step(none, none, read, none, write, options);
  }

  /** Folds two local chunks into a third. */
  reduce(read: Ref, other: Ref, write: Ref, options?: StepOptions): this {
    return this.#step(none, none, read, other, write, options);
  }

  /** Receives, folds with a local chunk, stores. */
  recvReduceCopy(from: number, read: Ref, write: Ref, options?: StepOptions): this {
    return this.#step(from, none, read, none, write, options);
  }

  /** Receives, folds with a local chunk, passes on. */
  recvReduceSend(from: number, read: Ref, to: number, options?: StepOptions): this {
    return this.#step(from, to, read, none, none, options);
  }

  /** Receives, folds with a local chunk, stores and passes on. */
  recvReduceCopySend(from: number, read: Ref, write: Ref, to: number, options?: StepOptions): this {
    return this.#step(from, to, read, none, write, options);
  }

  /** Receives, stores and passes on. */
  recvCopySend(from: number, write: Ref, to: number, options?: StepOptions): this {
    return this.#step(from, to, none, none, write, options);
  }

  /** Signals a peer that this rank has reached this step; carries no data. */
  signal(to: number): this {
    return this.#step(none, to, none, none, none, { span: 0 });
  }

  /** Waits for a peer's signal. */
  wait(from: number): this {
    return this.#step(from, none, none, none, none, { span: 0 });
  }

  /**
   * Writes the steps of `write` `times` times. Every repetition must send and receive the same lengths. Its peers are
   * the same each time, or are matched within the repetition. Such a lane has a brief form, so that a million ranks
   * can be timed.
   */
  repeat(times: number, write: (time: number) => void): this {
    if (this.repeats === undefined || times <= 2) {
      for (let time = 0; time < times; time++) write(time);
      return this;
    }
    const at = this.#end / stepWidth;
    write(0);
    const length = this.#end / stepWidth - at;
    write(times - 1);
    this.repeats.push({ at, length, times });
    return this;
  }

  #step(from: number, to: number, read: Ref, other: Ref, write: Ref, options?: StepOptions): this {
    this.#onStep?.();
    const at = this.#end;
    if (at === this.#code.length) {
      const longer = new Int32Array(2 * at);
      longer.set(this.#code);
      this.#code = longer;
    }
    const span = options?.span ?? 1;
    const packs = isWord(from) && isWord(to) && isWord(read) && isWord(other) && isWord(write);
    const isSpan = isWord(span) && span >= 0 && span <= this.#chunks;
    if (!packs || !isSpan) throw this.#refusal({ from, to, read, other, write, span });
    const code = this.#code;
    code[at + column.from] = from;
    code[at + column.to] = to;
    code[at + column.read] = read;
    code[at + column.other] = other;
    code[at + column.write] = write;
    code[at + column.span] = span;
    code[at + column.final] = options?.final === true ? 1 : 0;
    this.#end = at + stepWidth;
    return this;
  }

  /** The error for a field that a packed step would truncate silently, or for a span longer than every buffer. */
  #refusal(fields: Readonly<Record<string, number>>): InvalidArgumentError {
    const entries = Object.entries(fields);
    const [field, value] = entries.find(([, each]) => !isWord(each)) ?? ["span", fields["span"]];
    const needed = field === "span" ? `an integer in 0..${this.#chunks}` : "an integer of 32 bits";
    return invalid(`step ${this.length} of rank ${this.rank}`, field, textOf(value), needed);
  }
}

function isWord(value: number): boolean {
  return (value | 0) === value;
}

/** The most channels of an algorithm. */
const maxChannels = 1024;

/** The description of a program, without its steps. */
export interface ProgramHead {
  readonly collective: SpecifiedCollective;
  readonly algorithm: string;
  readonly ranks: number;
  readonly root: number;
  readonly chunksPerBlock: number;
  readonly channels?: number | undefined;
  readonly scratchChunks?: number | undefined;
}

/** Collects the lanes of all ranks and packs them. */
export class ProgramBuilder {
  readonly ranks: number;
  readonly root: number;
  readonly #head: ProgramHead;
  /** Chunks of a program's longest buffer, or more. */
  readonly #chunks: number;
  /** Created on first use, so that a program that is refused has not allocated all of them. */
  readonly #lanes: (Lane | undefined)[] = [];
  /** The lane that was created last. */
  #latest: Lane | undefined;
  #steps = 0;
  /** The single lane that is being written; `undefined` while all are. */
  #selected: { readonly lane: Lane; readonly channel: number } | undefined;
  readonly #countStep = (): void => {
    if (++this.#steps > maxSteps) throw tooManySteps(this.#head);
  };

  /** @throws InvalidArgumentError for numbers of ranks, chunks or channels that no program has. */
  constructor(head: ProgramHead) {
    assertArgument(
      hasFields(head, {}),
      "ProgramBuilder",
      "head",
      head,
      "an object with collective, ranks and more",
    );
    assertCollective("ProgramBuilder", head.collective);
    assertInteger("ProgramBuilder", "ranks", head.ranks, 1, Number.MAX_SAFE_INTEGER);
    assertInteger("ProgramBuilder", "root", head.root, none, head.ranks - 1);
    // A plan of NCCL for no elements has no chunks.
    assertInteger("algorithm", "chunksPerBlock", head.chunksPerBlock, 0, maxChunks);
    assertInteger("algorithm", "scratchChunks", head.scratchChunks ?? 0, 0, maxChunks);
    assertInteger("algorithm", "channels", head.channels ?? 1, 1, maxChannels);
    this.ranks = head.ranks;
    this.root = head.root;
    this.#head = head;
    this.#chunks = Math.max(head.ranks * head.chunksPerBlock, head.scratchChunks ?? 0);
  }

  /** Writes each rank's lane of one channel, as an SPMD program is written: once, for `rank`. */
  everyRank(write: (lane: Lane, rank: number) => void, channel = 0): void {
    if (this.#selected !== undefined) {
      const { lane } = this.#selected;
      if (channel === this.#selected.channel) write(lane, lane.rank);
      return;
    }
    for (let rank = 0; rank < this.ranks; rank++) {
      write(this.lane(rank, channel), rank);
    }
  }

  /**
   * The lane of a rank in a channel.
   *
   * @throws InvalidArgumentError when there is no such rank or channel.
   */
  lane(rank: number, channel = 0): Lane {
    assertIndex("lane", "rank", rank, this.ranks);
    assertIndex("lane", "channel", channel, this.#head.channels ?? 1);
    if (this.#selected !== undefined) {
      const { lane } = this.#selected;
      return rank === lane.rank && channel === this.#selected.channel
        ? lane
        : new Lane(rank, this.#chunks);
    }
    const index = rank * (this.#head.channels ?? 1) + channel;
    let lane = this.#lanes[index];
    if (lane === undefined) {
      // Lanes of a program have similar lengths.
      const capacity = Math.max(firstSteps, this.#latest?.length ?? 0);
      lane = new Lane(rank, this.#chunks, this.#countStep, false, capacity);
      this.#lanes[index] = lane;
      this.#latest = lane;
    }
    return lane;
  }

  /** The description of the program. */
  get frame(): Omit<Program, "code" | "starts"> {
    const { channels = 1, scratchChunks = 0 } = this.#head;
    return { ...this.#head, channels, scratchChunks };
  }

  /** Writes one lane and returns its steps, packed as in `Program.code`: for programs too large for memory. */
  stepsOf(write: (program: ProgramBuilder) => void, rank: number, channel: number): Int32Array {
    return this.#written(write, new Lane(rank, this.#chunks), channel).code;
  }

  /**
   * Throws, before the steps of all ranks are written, when they would exceed the limit for memory. For programs in which
   * every rank has as many steps as rank 0; steps of channel 0 are counted.
   *
   * @throws UnsupportedError as `build` does.
   */
  assertFits(write: (program: ProgramBuilder) => void): void {
    const { length, repeats = [] } = this.briefly(write, 0);
    const steps = repeats.reduce((sum, each) => sum + (each.times - 2) * each.length, length);
    if (steps * this.ranks > maxSteps) throw tooManySteps(this.#head);
  }

  /** The brief form of the same lane: the first and the last repetition only. */
  briefly(write: (program: ProgramBuilder) => void, rank: number): Lane {
    return this.#written(write, new Lane(rank, this.#chunks, undefined, true), 0);
  }

  #written(write: (program: ProgramBuilder) => void, lane: Lane, channel: number): Lane {
    this.#selected = { lane, channel };
    try {
      write(this);
    } finally {
      this.#selected = undefined;
    }
    return lane;
  }

  /**
   * The finished program.
   *
   * @throws UnsupportedError while steps are written, when they exceed the limit for memory.
   */
  build(): Program {
    const { frame } = this;
    const { channels } = frame;
    const lanes = this.ranks * channels;
    const starts = new Int32Array(lanes + 1);
    for (let index = 0; index < lanes; index++) {
      starts[index + 1] = (starts[index] as number) + (this.#lanes[index]?.length ?? 0);
    }
    const code = new Int32Array((starts[lanes] as number) * stepWidth);
    this.#lanes.forEach((lane, index) => {
      if (lane !== undefined) code.set(lane.code, (starts[index] as number) * stepWidth);
    });
    return { ...frame, code, starts };
  }
}
