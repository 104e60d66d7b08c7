/**
 * One rank that represents all: in a symmetric program, ranks that start together have the same times.
 *
 * `briefLane` reads the messages of rank 0. A message is identified by its *offset*, equal for the sender and the receiver: the
 * distance between their ranks, or the bits in which these differ. Repeated steps are kept once. An offset that changes between
 * repetitions gets its own number, because its messages are received within the repetition.
 *
 * `foldedTiming` computes the times of that rank. Its peer sends the same at the same time, so rank 0 receives on an
 * offset the message that it sent there. The recurrence only adds and takes maxima. So once a repetition shifts all
 * times by the same amount, every later one does too, and is skipped. The cost does not grow with the ranks.
 */

import type { SpecifiedCollective } from "../../api/collectives/index.ts";
import { type Algorithm, assertAlgorithm, builderOf, type Symmetry } from "../algorithm.ts";
import { assertAmount, assertArgument, assertInteger } from "../arguments.ts";
import type { Lane } from "../builder.ts";
import { column, none, stepWidth } from "../program.ts";
import { assertModel, type LinkModel } from "./model.ts";
import { stuckError } from "./recurrence.ts";

/** The result of every rank. */
export interface FoldedTiming {
  /** Time at which each rank is done. */
  readonly finished: number;
  readonly sentElements: number;
  /** Messages that each rank sends. */
  readonly messages: number;
}

/** Times of one rank that represents all: they start together and every chunk has `chunkElements` elements. */
export function foldedTiming(
  blocks: readonly BriefBlock[],
  chunkElements: number,
  model: LinkModel,
): FoldedTiming {
  assertArgument(
    Array.isArray(blocks),
    "foldedTiming",
    "blocks",
    blocks,
    "blocks, as briefLane gives them",
  );
  for (const [at, block] of blocks.entries()) assertBlock(at, block);
  assertAmount("foldedTiming", "chunkElements", chunkElements);
  assertModel("foldedTiming", model);
  const rank = new RepresentativeRank(chunkElements, model);
  for (const block of blocks) rank.take(block);
  return rank.timing();
}

/** Needs a block with whole numbers of repetitions, offsets and chunks. */
function assertBlock(at: number, found: BriefBlock): void {
  const { times, steps } = Object(found) as BriefBlock;
  const field = `blocks[${at}]`;
  assertArgument(Array.isArray(steps), "foldedTiming", field, found, "a block of briefLane");
  assertInteger("foldedTiming", `${field}.times`, times, 1, Number.MAX_SAFE_INTEGER);
  const wrong = steps.findIndex((step) => !isStep(step));
  const needed = "offsets of at least -1 and chunks of at least 0";
  assertArgument(wrong < 0, "foldedTiming", `${field}.steps[${wrong}]`, steps[wrong], needed);
}

function isStep(found: BriefStep): boolean {
  const { receive, send, span } = Object(found) as BriefStep;
  const areIntegers = [receive, send, span].every(Number.isSafeInteger);
  return areIntegers && receive >= none && send >= none && span >= 0;
}

/** A message in flight: the time at which it took the port, and its chunks. */
interface Sent {
  start: number;
  readonly span: number;
}

/** Times, and the messages in flight. */
interface State {
  readonly times: readonly number[];
  readonly flights: string;
}

class RepresentativeRank {
  readonly #chunkElements: number;
  readonly #model: LinkModel;
  #now = 0;
  #sendPort = 0;
  #sentSpans = 0;
  #messages = 0;
  /** Messages in flight, by offset. */
  readonly #flights: Sent[][] = [];

  constructor(chunkElements: number, model: LinkModel) {
    this.#chunkElements = chunkElements;
    this.#model = model;
  }

  timing(): FoldedTiming {
    return {
      finished: Math.max(this.#now, this.#sendPort),
      sentElements: this.#sentSpans * this.#chunkElements,
      messages: this.#messages,
    };
  }

  take({ times, steps }: BriefBlock): void {
    const used = new Set(steps.flatMap(({ receive, send }) => [receive, send]));
    used.delete(none);
    const sends = steps.some(({ send }) => send !== none);
    for (let time = 1; time <= times; time++) {
      const before = this.#state(used, sends);
      const { sentSpans, messages } = this.#tally();
      for (const step of steps) this.#step(step);
      const shift = shiftOf(before, this.#state(used, sends));
      if (shift === undefined) continue;
      const left = times - time;
      this.#shift(used, sends, shift * left);
      this.#sentSpans += (this.#sentSpans - sentSpans) * left;
      this.#messages += (this.#messages - messages) * left;
      return;
    }
  }

  #tally(): { sentSpans: number; messages: number } {
    return { sentSpans: this.#sentSpans, messages: this.#messages };
  }

  #step({ receive, send, span }: BriefStep): void {
    let passed = span;
    if (receive !== none) {
      const message = this.#flights[receive]?.shift();
      if (message === undefined) throw stuckError();
      passed = message.span;
      const recvStart = Math.max(message.start + this.#model.latency, this.#now);
      this.#now = recvStart + this.#occupancy(passed);
    }
    if (send === none) return;
    const start = Math.max(this.#now, this.#sendPort);
    this.#sendPort = start + this.#occupancy(passed);
    this.#sentSpans += passed;
    this.#messages++;
    const flight = this.#flights[send] ?? [];
    this.#flights[send] = flight;
    flight.push({ start, span: passed });
  }

  #occupancy(span: number): number {
    return this.#model.occupancy(span * this.#chunkElements);
  }

  /** Everything that the steps of a block depend on. */
  #state(used: ReadonlySet<number>, sends: boolean): State {
    const times = sends ? [this.#now, this.#sendPort] : [this.#now];
    let flights = "";
    for (const offset of used) {
      for (const { start, span } of this.#flights[offset] ?? []) {
        times.push(start);
        flights += `${offset}:${span} `;
      }
    }
    return { times, flights };
  }

  #shift(used: ReadonlySet<number>, sends: boolean, by: number): void {
    this.#now += by;
    if (sends) this.#sendPort += by;
    for (const offset of used) {
      for (const message of this.#flights[offset] ?? []) message.start += by;
    }
  }
}

/** The amount by which all times are later; `undefined` when amounts or messages in flight differ. */
function shiftOf(before: State, after: State): number | undefined {
  if (before.flights !== after.flights) return undefined;
  const shift = (after.times[0] ?? 0) - (before.times[0] ?? 0);
  const same = after.times.every((time, i) => time - (before.times[i] as number) === shift);
  return same ? shift : undefined;
}

/** A step that receives on an offset, sends on one, or both; -1 for none. */
export interface BriefStep {
  readonly receive: number;
  readonly send: number;
  /** Chunks of a message that the step creates. */
  readonly span: number;
}

/** Steps and the number of their repetitions. */
export interface BriefBlock {
  readonly times: number;
  readonly steps: readonly BriefStep[];
}

/** The lane of rank 0; `undefined` where the algorithm has no symmetry for that number of ranks. */
export function briefLane(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
): readonly BriefBlock[] | undefined {
  assertAlgorithm("briefLane", collective, algorithm);
  const symmetry = algorithm.symmetry?.(ranks);
  if (symmetry === undefined) return undefined;
  const builder = builderOf(collective, algorithm, ranks, none);
  return blocksOf(builder.briefly(algorithm.write, 0), ranks, symmetry);
}

function blocksOf(lane: Lane, ranks: number, symmetry: Symmetry): BriefBlock[] {
  const { code, repeats = [] } = lane;
  const offsets = new Offsets(ranks, symmetry);
  const blocks: BriefBlock[] = [];
  const single = (begin: number, end: number): void => {
    const steps: BriefStep[] = [];
    for (let step = begin; step < end; step++) offsets.add(steps, code, step, step);
    if (steps.length > 0) blocks.push({ times: 1, steps });
  };
  let done = 0;
  for (const { at, length, times } of repeats) {
    single(done, at);
    const steps: BriefStep[] = [];
    for (let step = at; step < at + length; step++) offsets.add(steps, code, step, step + length);
    if (steps.length > 0) blocks.push({ times, steps });
    done = at + 2 * length;
  }
  single(done, code.length / stepWidth);
  return blocks;
}

/** Numbers the offsets of a lane. */
class Offsets {
  readonly #ranks: number;
  readonly #symmetry: Symmetry;
  readonly #numbers = new Map<string, number>();

  constructor(ranks: number, symmetry: Symmetry) {
    this.#ranks = ranks;
    this.#symmetry = symmetry;
  }

  /** Adds a step: number `first` in the first repetition and `last` in the last one. */
  add(steps: BriefStep[], code: Int32Array, first: number, last: number): void {
    const [at, end] = [first * stepWidth, last * stepWidth];
    const number = (field: number): number =>
      this.#number(field, code[at + field] as number, code[end + field] as number);
    const receive = number(column.from);
    const send = number(column.to);
    if (receive === none && send === none) return;
    steps.push({ receive, send, span: code[at + column.span] as number });
  }

  #number(field: number, first: number, last: number): number {
    if (first === none) return none;
    const begin = this.#offset(field, first);
    const end = this.#offset(field, last);
    const key = begin === end ? `${begin}` : `${begin}..${end}`;
    const number = this.#numbers.get(key) ?? this.#numbers.size;
    this.#numbers.set(key, number);
    return number;
  }

  /** From the sender to the receiver, seen from rank 0. */
  #offset(field: number, peer: number): number {
    const back = this.#symmetry === "rotation" && field === column.from;
    return back ? (this.#ranks - peer) % this.#ranks : peer;
  }
}
