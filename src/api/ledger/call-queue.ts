/** Calls that were handed to a session which queues them: the ledger goes on while they are at work. */
import type { Waiting } from "../backend.ts";
import type { Monitor } from "./monitor.ts";
import type { Posting } from "./posting.ts";

/** Told when queued calls are done. */
type Settle = (postings: readonly Posting[], error: unknown) => void;

/** A call in the queue, linked with those before and after it: most leave in the order in which they came. */
class QueuedCall implements Waiting {
  readonly postings: readonly Posting[];
  readonly #queue: CallQueue;
  before: QueuedCall | undefined;
  after: QueuedCall | undefined;
  isQueued = true;

  constructor(queue: CallQueue, postings: readonly Posting[], before: QueuedCall | undefined) {
    this.#queue = queue;
    this.postings = postings;
    this.before = before;
  }

  settled(error?: unknown): void {
    this.#queue.settled(this, error);
  }
}

/** The queued calls of one communicator. */
export class CallQueue {
  readonly #monitor: Monitor;
  readonly #settle: Settle;
  #first: QueuedCall | undefined;
  #last: QueuedCall | undefined;
  #size = 0;

  constructor(monitor: Monitor, settle: Settle) {
    this.#monitor = monitor;
    this.#settle = settle;
  }

  get size(): number {
    return this.#size;
  }

  /** Has calls handed over, and settled when they are done. What `hand` throws was not queued. */
  add(postings: readonly Posting[], hand: (waiting: Waiting) => void): void {
    const call = this.#join(postings);
    this.#monitor.executing(1);
    try {
      hand(call);
    } catch (error) {
      this.#remove(call);
      throw error;
    }
    for (const { op } of postings) op.submit();
  }

  /** A queued call is done, or failed. */
  settled(call: QueuedCall, error: unknown): void {
    if (this.#remove(call)) this.#settle(call.postings, error);
  }

  /** What every rank has queued, oldest first. */
  postings(): Posting[] {
    const all: Posting[] = [];
    for (let call = this.#first; call !== undefined; call = call.after) all.push(...call.postings);
    return all;
  }

  #join(postings: readonly Posting[]): QueuedCall {
    const call = new QueuedCall(this, postings, this.#last);
    if (this.#last === undefined) this.#first = call;
    else this.#last.after = call;
    this.#last = call;
    this.#size++;
    return call;
  }

  /** False when it was gone already. */
  #remove(call: QueuedCall): boolean {
    if (!call.isQueued) return false;
    call.isQueued = false;
    const { before, after } = call;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    call.before = undefined;
    call.after = undefined;
    this.#size--;
    this.#monitor.executing(-1);
    return true;
  }
}
