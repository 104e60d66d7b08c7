/**
 * The interpreter: executes a program hop by hop on real numbers, as a machine of ranks and wires would.
 *
 * A second reading of what a program means, independent of the symbolic one in `src/algorithms/verify`. Memory is
 * memory: in place, an output lies on the input it may lie on, and a chunk has the length that the layout gives it.
 * Messages carry numbers through a bounded channel per pair of ranks; with no credits, a sender waits until its
 * receiver stands at the matching receive. Which lane goes on next is up to `order`.
 */
import { specifications } from "twinccl";
import type { ChunkTable, Layout, Program } from "twinccl/algorithms";
import { randomWords } from "./seed.ts";

/** The arithmetic of a reduction's hops, on whole messages. */
export interface HopArithmetic {
  /** Numbers that make up an element. */
  readonly width: number;
  /** A rank's own input as it goes on its way. */
  partial(contribution: Float64Array): Float64Array;
  /** Two partials folded. */
  fold(a: Float64Array, b: Float64Array): Float64Array;
  /** A rank's own input folded into a partial, in one rounding. */
  foldIn(partial: Float64Array, contribution: Float64Array): Float64Array;
  /** The last step after all contributions are in. */
  finish(value: Float64Array): Float64Array;
}

/** One run. */
export interface Trial {
  readonly program: Program;
  readonly layout: Layout;
  /** Numbers of every rank's input. */
  readonly inputs: readonly Float64Array[];
  /** `undefined` for collectives that only copy. */
  readonly arithmetic: HopArithmetic | undefined;
  /** Messages that a channel holds; 0 for rendezvous. */
  readonly credits: number;
  /** The choice of the next lane: 0 the first ready one, 1 the last ready one, others at random by that seed. */
  readonly order: number;
  readonly inPlace: boolean;
  /** A rank that never enters the call. */
  readonly absent?: number;
}

/** The end of a run. */
export interface Ending {
  /** Every rank has left and every message was received. */
  readonly finished: boolean;
  /** Ranks that have left. */
  readonly left: readonly number[];
  /** Why the machine could not go on: a step that no machine can take. */
  readonly fault: string | undefined;
  readonly outputs: readonly Float64Array[];
}

/** Fills unwritten memory, so that a read of it shows. */
const unwritten = -7.25e-5;

/** Runs a program to its end, or to where it gets stuck. */
export function interpret(trial: Trial): Ending {
  return new Machine(trial).run();
}

class StepFault extends Error {}

/** A lane's place: the step it stands at, and the value it holds once the first half of that step is done. */
interface LaneState {
  readonly rank: number;
  readonly channel: number;
  readonly end: number;
  at: number;
  held: Float64Array | undefined;
}

interface StepFields {
  readonly from: number;
  readonly to: number;
  readonly read: number;
  readonly other: number;
  readonly write: number;
  readonly span: number;
  readonly final: boolean;
}

/** An operand of a step; a raw one is a rank's own input, which no hop has seen. */
interface Operand {
  readonly raw: boolean;
  readonly value: Float64Array;
}

/** A rank's memory. */
interface Memory {
  readonly cells: readonly [Float64Array, Float64Array, Float64Array];
  readonly tables: readonly [ChunkTable, ChunkTable, ChunkTable];
}

class Machine {
  readonly #trial: Trial;
  readonly #width: number;
  readonly #memory: readonly Memory[];
  readonly #lanes: readonly LaneState[];
  /** By channel, sender and receiver. */
  readonly #wires = new Map<string, Float64Array[]>();

  constructor(trial: Trial) {
    const { ranks, channels, starts } = trial.program;
    this.#trial = trial;
    this.#width = trial.arithmetic?.width ?? 1;
    this.#memory = Array.from({ length: ranks }, (_, rank) => memoryOf(trial, rank, this.#width));
    this.#lanes = Array.from({ length: ranks * channels }, (_, lane) => ({
      rank: Math.floor(lane / channels),
      channel: lane % channels,
      at: starts[lane]!,
      end: starts[lane + 1]!,
      held: undefined,
    }));
  }

  run(): Ending {
    const { order, absent, program } = this.#trial;
    const dice = randomWords(order * 0x9e3779b1);
    const entered = this.#lanes.filter(({ rank }) => rank !== absent);
    let fault: string | undefined;
    try {
      for (let moved = true; moved; ) {
        moved = false;
        for (const lane of turns(entered, order, dice)) {
          // A die also decides how far a lane gets before the next one's turn.
          for (let left = order < 2 ? Infinity : 1 + (dice() % 6); left > 0; left--) {
            if (!this.#halfStep(lane)) break;
            moved = true;
          }
        }
      }
    } catch (error) {
      if (!(error instanceof StepFault)) throw error;
      fault = error.message;
    }
    const ranks = Array.from({ length: program.ranks }, (_, rank) => rank);
    const left = ranks.filter((rank) =>
      this.#lanes.every((lane) => lane.rank !== rank || (lane.at === lane.end && !lane.held)),
    );
    const onTheWay = [...this.#wires.values()].some((wire) => wire.length > 0);
    const finished = fault === undefined && left.length === program.ranks && !onTheWay;
    return { finished, left, fault, outputs: this.#memory.map(({ cells }) => cells[1]) };
  }

  /** Takes the first half of a step (receive, fold, store) or the second (send); false when it must wait. */
  #halfStep(lane: LaneState): boolean {
    if (lane.at >= lane.end) return false;
    const step = this.#fields(lane.at);
    if (lane.held === undefined) {
      const received = step.from < 0 ? undefined : this.#receive(lane, step);
      if (step.from >= 0 && received === undefined) return false;
      const value = this.#compute(lane.rank, step, received);
      if (step.write >= 0) this.#store(lane.rank, step, value);
      if (step.to >= 0) lane.held = value;
      else lane.at += 1;
      return true;
    }
    // Without credits the receiver collects the message.
    if (this.#trial.credits === 0) return false;
    const wire = this.#wire(lane.channel, lane.rank, this.#peer(step.to));
    if (wire.length >= this.#trial.credits) return false;
    wire.push(lane.held);
    lane.held = undefined;
    lane.at += 1;
    return true;
  }

  #receive({ rank, channel }: LaneState, step: StepFields): Float64Array | undefined {
    const from = this.#peer(step.from);
    if (this.#trial.credits > 0) return this.#wire(channel, from, rank).shift();
    const sender = this.#lanes[from * this.#trial.program.channels + channel]!;
    const { held } = sender;
    if (held === undefined || this.#fields(sender.at).to !== rank) return undefined;
    sender.held = undefined;
    sender.at += 1;
    return held;
  }

  #compute(rank: number, step: StepFields, received: Float64Array | undefined): Float64Array {
    const operands: Operand[] = received === undefined ? [] : [{ raw: false, value: received }];
    for (const ref of [step.read, step.other]) {
      if (ref !== -1) operands.push({ raw: (ref & 3) === 0, value: this.#load(rank, ref, step) });
    }
    const { arithmetic } = this.#trial;
    const [first, ...others] = operands;
    if (first === undefined) return new Float64Array(0);
    if (operands.some(({ value }) => value.length !== first.value.length)) {
      throw new StepFault("operands of different lengths");
    }
    if (arithmetic === undefined) {
      if (others.length > 0) throw new StepFault("a fold where nothing can be folded");
      return first.value;
    }
    let { raw, value } = first;
    for (const next of others) {
      if (next.raw) value = arithmetic.foldIn(raw ? arithmetic.partial(value) : value, next.value);
      else if (raw) value = arithmetic.foldIn(next.value, value);
      else value = arithmetic.fold(value, next.value);
      raw = false;
    }
    if (raw) value = arithmetic.partial(value);
    return step.final ? arithmetic.finish(value) : value;
  }

  #load(rank: number, ref: number, { span }: StepFields): Float64Array {
    const { cells, chunks } = this.#range(rank, ref, span);
    const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const value = new Float64Array(length);
    let at = 0;
    for (const chunk of chunks) {
      value.set(cells.subarray(chunk.offset, chunk.offset + chunk.length), at);
      at += chunk.length;
    }
    return value;
  }

  #store(rank: number, step: StepFields, value: Float64Array): void {
    if ((step.write & 3) === 0) throw new StepFault("stores in an input");
    const { cells, chunks } = this.#range(rank, step.write, step.span);
    let at = 0;
    for (const chunk of chunks) {
      cells.set(value.subarray(at, at + chunk.length), chunk.offset);
      at += chunk.length;
    }
    if (at !== value.length) throw new StepFault("stores another length than it has");
  }

  #range(rank: number, ref: number, span: number) {
    const { cells, tables } = this.#memory[rank]!;
    const buffer = ref & 3;
    const table = tables[buffer];
    const first = ref >> 2;
    if (table === undefined || first < 0 || first + span > table.lengths.length) {
      throw new StepFault("a chunk that the rank does not have");
    }
    const chunks = Array.from({ length: span }, (_, i) => ({
      offset: table.offsets[first + i]! * this.#width,
      length: table.lengths[first + i]! * this.#width,
    }));
    return { cells: cells[buffer]!, chunks };
  }

  #fields(step: number): StepFields {
    const at = step * 7;
    const [from, to, read, other, write, span, final] = this.#trial.program.code.subarray(
      at,
      at + 7,
    );
    return {
      from: from!,
      to: to!,
      read: read!,
      other: other!,
      write: write!,
      span: span!,
      final: final === 1,
    };
  }

  #peer(rank: number): number {
    if (rank < this.#trial.program.ranks) return rank;
    throw new StepFault("a peer that is no rank");
  }

  #wire(channel: number, from: number, to: number): Float64Array[] {
    const key = `${channel}/${from}/${to}`;
    const wire = this.#wires.get(key) ?? [];
    this.#wires.set(key, wire);
    return wire;
  }
}

/** The lanes in the order in which they get their turn. */
function turns(lanes: readonly LaneState[], order: number, dice: () => number): LaneState[] {
  const turn = [...lanes];
  if (order === 0) return turn;
  if (order === 1) return turn.reverse();
  for (let last = turn.length - 1; last > 0; last--) {
    const other = dice() % (last + 1);
    [turn[last], turn[other]] = [turn[other]!, turn[last]!];
  }
  return turn;
}

function memoryOf(trial: Trial, rank: number, width: number): Memory {
  const { program, layout, inputs, inPlace } = trial;
  const tables = [layout.in[rank]!, layout.out[rank]!, scratchTable(trial, rank)] as const;
  const [inLength, outLength, scratchLength] = tables.map((table) => endOf(table) * width) as [
    number,
    number,
    number,
  ];
  const shift = inPlace ? outOverIn(program, layout, rank) : undefined;
  // Apart, or with the output beginning `shift` elements after the input: one piece of memory for both.
  const inAt = shift === undefined ? 0 : Math.max(0, -shift) * width;
  const outAt = shift === undefined ? inLength : inAt + shift * width;
  const both = new Float64Array(Math.max(inAt + inLength, outAt + outLength)).fill(unwritten);
  both.set(inputs[rank]!, inAt);
  const cells = [
    both.subarray(inAt, inAt + inLength),
    both.subarray(outAt, outAt + outLength),
    new Float64Array(scratchLength).fill(unwritten),
  ] as const;
  return { cells, tables };
}

/** Elements from the start of the input to the start of the output when in place; `undefined` where they are apart. */
function outOverIn(program: Program, layout: Layout, rank: number): number | undefined {
  const { collective, ranks, root, chunksPerBlock } = program;
  const spec = specifications[collective];
  for (let block = 0; block < spec.inBlocks(ranks, rank, root); block++) {
    const over = spec.inPlace(ranks, rank, block, root);
    if (over === undefined) continue;
    const inOffset = layout.in[rank]!.offsets[block * chunksPerBlock]!;
    return inOffset - layout.out[rank]!.offsets[over * chunksPerBlock]!;
  }
  return undefined;
}

/** Scratch chunks are as long as the input's, counted round and round, one after another. */
function scratchTable({ program, layout }: Trial, rank: number): ChunkTable {
  const { lengths: input } = layout.in[rank]!;
  const lengths = Float64Array.from(
    { length: program.scratchChunks },
    (_, chunk) => input[chunk % input.length] ?? 0,
  );
  let at = 0;
  const offsets = lengths.map((length) => {
    at += length;
    return at - length;
  });
  return { offsets, lengths };
}

function endOf({ offsets, lengths }: ChunkTable): number {
  return offsets.reduce((end, offset, chunk) => Math.max(end, offset + lengths[chunk]!), 0);
}
