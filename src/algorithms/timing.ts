/**
 * When does each rank finish? A max-plus recurrence over the steps of a program.
 *
 * A rank takes its steps in order. A message leaves when its sender has come to the step and its send port is free,
 * occupies that port for its length, arrives after the latency, and occupies the receiver's port for its length; so
 * both ends are charged, and eight senders to one receiver take eight times as long as one. Sending does not hold the
 * rank up. Times are whatever integers the model uses; the recurrence only adds and takes maxima.
 */
import type { Layout } from "./layout.ts";
import { bufferOf, chunkOf, column, none, type Program, stepWidth } from "./program.ts";

/** What a message costs. */
export interface LinkModel {
  /** From leaving the sender to reaching the receiver. */
  readonly latency: number;
  /** How long a message of so many elements occupies a port. */
  occupancy(elements: number): number;
}

/** Told about every message, in the order in which they are received. */
export interface MessageEvent {
  readonly from: number;
  readonly to: number;
  readonly channel: number;
  readonly elements: number;
  /** When the message takes the sender's port, and when it leaves it. */
  readonly sendStart: number;
  readonly sendEnd: number;
  /** When it takes the receiver's port, and when it is there. */
  readonly recvStart: number;
  readonly recvEnd: number;
  /** Step of the program (over all lanes) that received it. */
  readonly step: number;
}

/** The times of one run of a program. */
export interface Timing {
  /** When each rank has taken its last step and its last message has left. */
  readonly finished: Float64Array;
  /** Elements that each rank sent. */
  readonly sentElements: Float64Array;
}

/** Evaluates a program from the ranks' starting times. */
export function evaluate(
  program: Program,
  layout: Layout | undefined,
  start: ArrayLike<number>,
  model: LinkModel,
  onMessage?: (event: MessageEvent) => void,
): Timing {
  return new Evaluation(program, layout, start, model, onMessage).run();
}

const noLengths = new Float64Array(1);

interface InFlight {
  readonly elements: number;
  readonly sendStart: number;
  readonly sendEnd: number;
}

class Evaluation {
  readonly #program: Program;
  readonly #layout: Layout | undefined;
  readonly #model: LinkModel;
  readonly #onMessage: ((event: MessageEvent) => void) | undefined;
  readonly #now: Float64Array;
  readonly #sendPort: Float64Array;
  readonly #recvPort: Float64Array;
  readonly #sent: Float64Array;
  readonly #at: Int32Array;
  readonly #queues: (InFlight[] | undefined)[];
  readonly #waiting: Int32Array;

  constructor(
    program: Program,
    layout: Layout | undefined,
    start: ArrayLike<number>,
    model: LinkModel,
    onMessage: ((event: MessageEvent) => void) | undefined,
  ) {
    const { ranks, channels, starts } = program;
    this.#program = program;
    this.#layout = layout;
    this.#model = model;
    this.#onMessage = onMessage;
    this.#now = Float64Array.from(
      { length: ranks * channels },
      (_, lane) => start[Math.floor(lane / channels)] ?? 0,
    );
    this.#sendPort = new Float64Array(ranks);
    this.#recvPort = new Float64Array(ranks);
    this.#sent = new Float64Array(ranks);
    this.#at = starts.slice(0, ranks * channels);
    this.#queues = new Array(ranks * ranks * channels);
    this.#waiting = new Int32Array(ranks * ranks * channels).fill(none);
  }

  run(): Timing {
    const { ranks, channels } = this.#program;
    const ready: number[] = [];
    for (let lane = ranks * channels - 1; lane >= 0; lane--) ready.push(lane);
    for (let lane = ready.pop(); lane !== undefined; lane = ready.pop()) this.#advance(lane, ready);
    const finished = new Float64Array(ranks);
    this.#now.forEach((time, lane) => {
      const rank = Math.floor(lane / channels);
      finished[rank] = Math.max(finished[rank] as number, time, this.#sendPort[rank] as number);
    });
    return { finished, sentElements: this.#sent };
  }

  #advance(lane: number, ready: number[]): void {
    const { starts, code, channels } = this.#program;
    const rank = Math.floor(lane / channels);
    const end = starts[lane + 1] as number;
    for (let step = this.#at[lane] as number; step < end; step++) {
      const at = step * stepWidth;
      const from = code[at + column.from] as number;
      const to = code[at + column.to] as number;
      let elements = none;
      if (from !== none) {
        elements = this.#receive(from, rank, lane, step);
        if (elements === none) {
          this.#at[lane] = step;
          return;
        }
      }
      if (to !== none) {
        if (elements === none) elements = this.#elements(rank, at);
        this.#send(rank, to, lane, elements, ready);
      }
    }
    this.#at[lane] = end;
  }

  #send(rank: number, to: number, lane: number, elements: number, ready: number[]): void {
    const sendStart = Math.max(this.#now[lane] as number, this.#sendPort[rank] as number);
    const sendEnd = sendStart + this.#model.occupancy(elements);
    this.#sendPort[rank] = sendEnd;
    this.#sent[rank] = (this.#sent[rank] as number) + elements;
    const queue = this.#queue(rank, to, lane);
    const messages = this.#queues[queue];
    if (messages === undefined) this.#queues[queue] = [{ elements, sendStart, sendEnd }];
    else messages.push({ elements, sendStart, sendEnd });
    const waiter = this.#waiting[queue] as number;
    if (waiter === none) return;
    this.#waiting[queue] = none;
    ready.push(waiter);
  }

  /** Elements received, or `none` when nothing has been sent yet. */
  #receive(from: number, rank: number, lane: number, step: number): number {
    const queue = this.#queue(from, rank, lane);
    const message = this.#queues[queue]?.shift();
    if (message === undefined) {
      this.#waiting[queue] = lane;
      return none;
    }
    const { elements, sendStart, sendEnd } = message;
    const arrival = sendStart + this.#model.latency;
    const recvStart = Math.max(arrival, this.#recvPort[rank] as number);
    const recvEnd = recvStart + this.#model.occupancy(elements);
    this.#recvPort[rank] = recvEnd;
    this.#now[lane] = Math.max(this.#now[lane] as number, recvEnd);
    const channel = lane % this.#program.channels;
    this.#onMessage?.({
      from,
      to: rank,
      channel,
      elements,
      sendStart,
      sendEnd,
      recvStart,
      recvEnd,
      step,
    });
    return elements;
  }

  #queue(from: number, to: number, lane: number): number {
    const { ranks, channels } = this.#program;
    return ((lane % channels) * ranks + from) * ranks + to;
  }

  /** Length of what a step reads on its own rank; 0 for signals. */
  #elements(rank: number, at: number): number {
    const { code } = this.#program;
    const read = code[at + column.read] as number;
    const span = code[at + column.span] as number;
    if (read === none || this.#layout === undefined) return 0;
    // Scratch has the lengths of the input, counted round and round.
    const tables = bufferOf(read) === 1 ? this.#layout.out : this.#layout.in;
    const lengths = tables[rank]?.lengths ?? noLengths;
    let elements = 0;
    for (let i = 0; i < span; i++) elements += lengths[(chunkOf(read) + i) % lengths.length] ?? 0;
    return elements;
  }
}
