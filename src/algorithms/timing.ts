/**
 * When does each rank finish? A max-plus recurrence over the steps of a program.
 *
 * A rank takes its steps in order. A message leaves when its sender has come to the step and its send port is free,
 * occupies that port for its length, arrives after the latency, and occupies the receiver's port for its length; so
 * both ends are charged, and eight senders to one receiver take eight times as long as one. Sending does not hold the
 * rank up. Where several lanes share the ports of a rank, halves of steps are taken in the order of time instead; with
 * one lane both ways give the same times. Times are whatever integers the model uses; the recurrence only adds and takes maxima.
 */
import { EventQueue } from "./event-queue.ts";
import type { Layout } from "./layout.ts";
import { pairing } from "./pairing.ts";
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
  /** Elements that a lane has received and not passed on yet; `none` when it stands before a receive. */
  readonly #held: Float64Array;
  /** For every step that receives, the step that sends what it gets. */
  readonly #pairs: Int32Array;
  /** When the message of each step took the sender's port; NaN until then. */
  readonly #sendStart: Float64Array;
  /** Elements of the message of each step. */
  readonly #length: Float64Array;
  /** Step whose message a lane waits for. */
  readonly #awaited: Int32Array;

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
    // A port may have been in use until the rank came here.
    this.#sendPort = Float64Array.from({ length: ranks }, (_, rank) => start[rank] ?? 0);
    this.#recvPort = this.#sendPort.slice();
    this.#sent = new Float64Array(ranks);
    this.#at = starts.slice(0, ranks * channels);
    this.#held = new Float64Array(ranks * channels).fill(none);
    this.#pairs = pairing(program);
    this.#sendStart = new Float64Array(this.#pairs.length).fill(Number.NaN);
    this.#length = new Float64Array(this.#pairs.length);
    this.#awaited = new Int32Array(ranks * channels).fill(none);
  }

  run(): Timing {
    const { ranks, channels } = this.#program;
    if (channels === 1) this.#runLanes();
    else this.#runEvents();
    const finished = new Float64Array(ranks);
    this.#now.forEach((time, lane) => {
      const rank = Math.floor(lane / channels);
      finished[rank] = Math.max(finished[rank] as number, time, this.#sendPort[rank] as number);
    });
    return { finished, sentElements: this.#sent };
  }

  /** With one lane a rank, its ports are used in program order: no event needs to wait for another lane's. */
  #runLanes(): void {
    const ready: number[] = [];
    const wake = (lane: number): void => void ready.push(lane);
    for (let lane = this.#at.length - 1; lane >= 0; lane--) ready.push(lane);
    for (let lane = ready.pop(); lane !== undefined; lane = ready.pop()) {
      while (this.#stepHalf(lane, wake)) {
        // Until the lane ends or waits for a message.
      }
    }
  }

  /** Lanes of a rank share its ports, so halves of steps happen in the order of time. */
  #runEvents(): void {
    const ready = new EventQueue();
    const wake = (lane: number): void => ready.push(lane, this.#nextTime(lane));
    for (let lane = 0; lane < this.#at.length; lane++) wake(lane);
    for (let lane = ready.pop(); lane !== undefined; lane = ready.pop()) {
      if (this.#stepHalf(lane, wake)) wake(lane);
    }
  }

  /** When a lane can take its next half step, as far as is known: a message may still have to be sent. */
  #nextTime(lane: number): number {
    const now = this.#now[lane] as number;
    const from = this.#program.code[(this.#at[lane] as number) * stepWidth + column.from];
    if (from === undefined || from === none || this.#held[lane] !== none) return now;
    const sent = this.#sendStart[this.#pairs[this.#at[lane] as number] as number];
    if (sent === undefined || Number.isNaN(sent)) return now;
    return Math.max(now, sent + this.#model.latency);
  }

  /** Takes the receiving or the sending half of a lane's step; false when it ended or has to wait. */
  #stepHalf(lane: number, wake: (lane: number) => void): boolean {
    const { starts, code, channels } = this.#program;
    const step = this.#at[lane] as number;
    if (step >= (starts[lane + 1] as number)) return false;
    const rank = Math.floor(lane / channels);
    const at = step * stepWidth;
    const from = code[at + column.from] as number;
    const to = code[at + column.to] as number;
    const held = this.#held[lane] as number;
    if (from !== none && held === none) {
      const elements = this.#receive(from, lane, step);
      if (elements === none) return false;
      if (to !== none) {
        this.#held[lane] = elements;
        return true;
      }
    } else if (to !== none) {
      this.#send(lane, step, held === none ? this.#elements(rank, at) : held);
      const receiver = to * channels + (lane % channels);
      if (this.#awaited[receiver] === step) {
        this.#awaited[receiver] = none;
        wake(receiver);
      }
      this.#held[lane] = none;
    }
    this.#at[lane] = step + 1;
    return true;
  }

  #send(lane: number, step: number, elements: number): void {
    const rank = Math.floor(lane / this.#program.channels);
    const sendStart = Math.max(this.#now[lane] as number, this.#sendPort[rank] as number);
    this.#sendPort[rank] = sendStart + this.#model.occupancy(elements);
    this.#sent[rank] = (this.#sent[rank] as number) + elements;
    this.#sendStart[step] = sendStart;
    this.#length[step] = elements;
  }

  /** Elements received, or `none` when nothing has been sent yet. */
  #receive(from: number, lane: number, step: number): number {
    const sender = this.#pairs[step] as number;
    // Without a message that is ever sent, the lane waits for good.
    const sendStart = this.#sendStart[sender] ?? Number.NaN;
    if (Number.isNaN(sendStart)) {
      this.#awaited[lane] = sender;
      return none;
    }
    const { channels } = this.#program;
    const to = Math.floor(lane / channels);
    const elements = this.#length[sender] as number;
    const occupancy = this.#model.occupancy(elements);
    const arrival = sendStart + this.#model.latency;
    const recvStart = Math.max(arrival, this.#recvPort[to] as number);
    const recvEnd = recvStart + occupancy;
    this.#recvPort[to] = recvEnd;
    this.#now[lane] = Math.max(this.#now[lane] as number, recvEnd);
    const channel = lane % channels;
    const sendEnd = sendStart + occupancy;
    this.#onMessage?.({
      from,
      to,
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
