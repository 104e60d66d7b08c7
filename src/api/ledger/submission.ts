/** Submission to the session: the order across communicators, and the queue of calls that are not done. */
import type { Completion, Session } from "../backend.ts";
import { completeOp, submitOp } from "../op.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import { Fifo } from "./fifo.ts";
import type { Agreement } from "./matched-call.ts";
import type { Posting } from "./posting.ts";

/** A call in a queue, linked with those before and after it: most leave in the order in which they came. */
export abstract class QueuedCall implements Completion {
  acceptsMore = false;
  /** `undefined` while it is in none. */
  queue: CallQueue | undefined;
  before: QueuedCall | undefined;
  after: QueuedCall | undefined;

  /** The posted calls of its ranks. */
  abstract readonly postings: readonly Posting[];

  /** The session has taken it. */
  abstract submitted(): void;

  /** Gives its ranks their results. */
  abstract complete(): void;

  settled(error?: unknown): void {
    this.queue?.settled(this, error);
  }
}

/** A call of those of its ranks that live in this process. */
export class PostedCall extends QueuedCall {
  readonly postings: readonly Posting[];

  constructor(postings: readonly Posting[]) {
    super();
    this.postings = postings;
  }

  submitted(): void {
    for (const { op } of this.postings) submitOp(op);
  }

  complete(): void {
    for (const { op, call, prepared } of this.postings) completeOp(op, prepared.resultOf(call));
  }
}

/** Called when a queued call has left; the error is `undefined` where it is done. */
type Left = (call: QueuedCall, error: unknown) => void;

/** The queued calls of one communicator. */
export class CallQueue {
  readonly #session: Session;
  readonly #monitor: Monitor;
  readonly #left: Left;
  #first: QueuedCall | undefined;
  #last: QueuedCall | undefined;
  #size = 0;

  constructor(session: Session, monitor: Monitor, left: Left) {
    this.#session = session;
    this.#monitor = monitor;
    this.#left = left;
  }

  get size(): number {
    return this.#size;
  }

  /** Has calls handed over, and settled when they are done. What `hand` throws was not queued. */
  add(postings: readonly Posting[], hand: (waiting: Completion) => void): void {
    const call = new PostedCall(postings);
    this.#join(call);
    try {
      hand(call);
    } catch (error) {
      this.#remove(call);
      throw error;
    }
    call.submitted();
  }

  /** Has the session queue a call again that it has worked out before. What it throws was not queued. */
  addAgain(call: QueuedCall, known: Agreement, number: number): void {
    this.#join(call);
    try {
      this.#session.enqueueRepeated?.(known, number, call);
    } catch (error) {
      this.#remove(call);
      throw error;
    }
    call.submitted();
  }

  /** A queued call is done, or failed. */
  settled(call: QueuedCall, error: unknown): void {
    this.#remove(call);
    this.#left(call, error);
  }

  /** The queued calls of every rank, oldest first. */
  postings(): Posting[] {
    const all: Posting[] = [];
    for (let call = this.#first; call !== undefined; call = call.after) {
      for (const posting of call.postings) all.push(posting);
    }
    return all;
  }

  /** The calls that were handed over with a posting, and the posting; nothing where it is not queued. */
  beside(posting: Posting): readonly Posting[] {
    for (let call = this.#first; call !== undefined; call = call.after) {
      if (call.postings.includes(posting)) return call.postings;
    }
    return [];
  }

  #join(call: QueuedCall): void {
    call.queue = this;
    call.before = this.#last;
    if (this.#last === undefined) this.#first = call;
    else this.#last.after = call;
    this.#last = call;
    this.#size++;
    this.#monitor.executing(1);
  }

  #remove(call: QueuedCall): void {
    const { before, after } = call;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    call.queue = undefined;
    call.before = undefined;
    call.after = undefined;
    this.#size--;
    this.#monitor.executing(-1);
  }
}

// The order across communicators.
//
// A call that first waits for ranks of other processes must not be overtaken by a later one on another communicator. They may
// submit the two in the other order, and on the streams of the ranks each would wait behind the other for ever.

/** Serves the next call of one communicator; a promise means that it is at it. */
type Turn = () => undefined | Promise<void>;

/** The order of turns among the communicators of one world. */
export class Turns {
  readonly #waiting = new Fifo<Turn>();
  readonly #onTaken: () => void;
  #taken = false;
  #serving = false;

  /** `onTaken` is called when a call keeps the later ones waiting. */
  private constructor(onTaken: () => void) {
    this.#onTaken = onTaken;
  }

  /** `undefined` where several ranks of a world are in this process: their calls are handed over when all have made them. */
  static of(session: Session, onTaken: () => void): Turns | undefined {
    const { localRanks, size } = session;
    return localRanks?.length === 1 && size > 1 ? new Turns(onTaken) : undefined;
  }

  /** Some call keeps the later ones waiting. */
  get taken(): boolean {
    return this.#taken || this.#serving;
  }

  /** A communicator has one more call to be served: it is, once those that were made before it have been handed over. */
  take(turn: Turn): void {
    this.#waiting.push(turn);
    if (!this.taken) this.#serve();
  }

  #serve(): void {
    this.#serving = true;
    while (!this.#taken) {
      const turn = this.#waiting.shift();
      if (turn === undefined) break;
      this.#begin(turn);
    }
    this.#serving = false;
  }

  #begin(turn: Turn): void {
    const served = turn();
    if (served === undefined) return;
    this.#taken = true;
    this.#onTaken();
    void served.then(() => {
      this.#taken = false;
      this.#serve();
    });
  }
}
