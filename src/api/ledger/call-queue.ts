/** Calls that were handed to a session which queues them: the ledger goes on while they are at work. */
import type { Settled } from "../backend.ts";
import type { Monitor } from "./monitor.ts";
import type { Posting } from "./posting.ts";

/** The queued calls of one communicator. */
export class CallQueue {
  readonly #monitor: Monitor;
  readonly #settle: (postings: readonly Posting[], error: unknown) => void;
  readonly #calls = new Set<readonly Posting[]>();

  constructor(monitor: Monitor, settle: (postings: readonly Posting[], error: unknown) => void) {
    this.#monitor = monitor;
    this.#settle = settle;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Has calls handed over, and settled when they are done. What `hand` throws was not queued. */
  add(postings: readonly Posting[], hand: (settled: Settled) => void): void {
    this.#calls.add(postings);
    this.#monitor.executing(1);
    try {
      hand((error) => {
        if (this.#remove(postings)) this.#settle(postings, error);
      });
    } catch (error) {
      this.#remove(postings);
      throw error;
    }
    for (const { op } of postings) op.submit();
  }

  /** What every rank has queued, oldest first. */
  postings(): Posting[] {
    return [...this.#calls].flat();
  }

  /** False when they were gone already. */
  #remove(postings: readonly Posting[]): boolean {
    if (!this.#calls.delete(postings)) return false;
    this.#monitor.executing(-1);
    return true;
  }
}
