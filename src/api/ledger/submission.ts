/** Submission to the session: the order across communicators, and the queue of calls that are not done. */
import type { Completion, Session } from "../backend.ts";
import { completeOp, submitOp } from "../op.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import { Fifo } from "./fifo.ts";
import type { Posting } from "./posting.ts";

/** A call in a queue, linked with those before and after it: most leave in the order in which they came. */
export abstract class Submission implements Completion {
  acceptsMore = false;
  /** `undefined` while it is in none. */
  queue: SubmissionQueue | undefined;
  before: Submission | undefined;
  after: Submission | undefined;

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
export class PostedSubmission extends Submission {
  readonly postings: readonly Posting[];

  constructor(postings: readonly Posting[]) {
    super();
    this.postings = postings;
  }

  submitted(): void {
    for (const { op } of this.postings) submitOp(op);
  }

  complete(): void {
    for (const { op, call, prepared } of this.postings) completeOp(op, prepared.toResult(call));
  }
}

/** Called when a queued call has left; the error is `undefined` where it is done. */
type OnDone = (call: Submission, error: unknown) => void;

/** The queued calls of one communicator. */
export class SubmissionQueue {
  readonly #monitor: Monitor;
  readonly #onDone: OnDone;
  #first: Submission | undefined;
  #last: Submission | undefined;
  #size = 0;

  constructor(monitor: Monitor, left: OnDone) {
    this.#monitor = monitor;
    this.#onDone = left;
  }

  get size(): number {
    return this.#size;
  }

  /** Queues a call, which `submit` passes to the session. A call for which it throws was not queued. */
  add(call: Submission, submit: (completion: Completion) => void): void {
    this.#append(call);
    try {
      submit(call);
    } catch (error) {
      this.#remove(call);
      throw error;
    }
    call.submitted();
  }

  /** A queued call is done, or failed. */
  settled(call: Submission, error: unknown): void {
    this.#remove(call);
    this.#onDone(call, error);
  }

  /** The queued calls of every rank, oldest first. */
  postings(): Posting[] {
    const all: Posting[] = [];
    for (let call = this.#first; call !== undefined; call = call.after) {
      for (const posting of call.postings) all.push(posting);
    }
    return all;
  }

  /** The calls submitted together with a posting, and the posting; empty where it is not queued. */
  submittedWith(posting: Posting): readonly Posting[] {
    for (let call = this.#first; call !== undefined; call = call.after) {
      if (call.postings.includes(posting)) return call.postings;
    }
    return [];
  }

  #append(call: Submission): void {
    call.queue = this;
    call.before = this.#last;
    if (this.#last === undefined) this.#first = call;
    else this.#last.after = call;
    this.#last = call;
    this.#size++;
    this.#monitor.executing(1);
  }

  #remove(call: Submission): void {
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
type DispatchNext = () => undefined | Promise<void>;

/** The order of turns among the communicators of one world. */
export class SubmissionOrder {
  readonly #waiting = new Fifo<DispatchNext>();
  readonly #onBlocked: () => void;
  #blocked = false;
  #dispatching = false;

  /** `onTaken` is called when a call keeps the later ones waiting. */
  private constructor(onTaken: () => void) {
    this.#onBlocked = onTaken;
  }

  /** `undefined` where several ranks of a world are in this process: their calls are submitted when all have made them. */
  static forSession(session: Session, onTaken: () => void): SubmissionOrder | undefined {
    const { localRanks, size } = session.info;
    return localRanks.length === 1 && size > 1 ? new SubmissionOrder(onTaken) : undefined;
  }

  /** Some call keeps the later ones waiting. */
  get isBlocked(): boolean {
    return this.#blocked || this.#dispatching;
  }

  /** Requests the dispatch of one more call: it runs once all calls made before it have been submitted. */
  request(turn: DispatchNext): void {
    this.#waiting.push(turn);
    if (!this.isBlocked) this.#dispatch();
  }

  #dispatch(): void {
    this.#dispatching = true;
    while (!this.#blocked) {
      const turn = this.#waiting.shift();
      if (turn === undefined) break;
      this.#begin(turn);
    }
    this.#dispatching = false;
  }

  #begin(turn: DispatchNext): void {
    const served = turn();
    if (served === undefined) return;
    this.#blocked = true;
    this.#onBlocked();
    void served.then(() => {
      this.#blocked = false;
      this.#dispatch();
    });
  }
}
