/** Calls that were handed to a session which queues them: the ledger goes on while they are at work. */
import type { Settled } from "../backend.ts";
import type { Monitor } from "./monitor.ts";
import type { Posting } from "./posting.ts";

/** A call in the queue, linked with those before and after it: most leave in the order in which they came. */
interface Link {
  readonly postings: readonly Posting[];
  before: Link | undefined;
  after: Link | undefined;
  isQueued: boolean;
}

/** The queued calls of one communicator. */
export class CallQueue {
  readonly #monitor: Monitor;
  readonly #settle: (postings: readonly Posting[], error: unknown) => void;
  #first: Link | undefined;
  #last: Link | undefined;
  #size = 0;

  constructor(monitor: Monitor, settle: (postings: readonly Posting[], error: unknown) => void) {
    this.#monitor = monitor;
    this.#settle = settle;
  }

  get size(): number {
    return this.#size;
  }

  /** Has calls handed over, and settled when they are done. What `hand` throws was not queued. */
  add(postings: readonly Posting[], hand: (settled: Settled) => void): void {
    const link = this.#join(postings);
    this.#monitor.executing(1);
    try {
      hand((error) => {
        if (this.#remove(link)) this.#settle(postings, error);
      });
    } catch (error) {
      this.#remove(link);
      throw error;
    }
    for (const { op } of postings) op.submit();
  }

  /** What every rank has queued, oldest first. */
  postings(): Posting[] {
    const all: Posting[] = [];
    for (let link = this.#first; link !== undefined; link = link.after) all.push(...link.postings);
    return all;
  }

  #join(postings: readonly Posting[]): Link {
    const link: Link = { postings, before: this.#last, after: undefined, isQueued: true };
    if (this.#last === undefined) this.#first = link;
    else this.#last.after = link;
    this.#last = link;
    this.#size++;
    return link;
  }

  /** False when they were gone already. */
  #remove(link: Link): boolean {
    if (!link.isQueued) return false;
    link.isQueued = false;
    const { before, after } = link;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    link.before = undefined;
    link.after = undefined;
    this.#size--;
    this.#monitor.executing(-1);
    return true;
  }
}
