/**
 * Losses of ranks that the store has reported while calls are under way.
 *
 * A rank that ends after its part of a call leaves messages on the way: on its connections, or at ranks that pass them on. The
 * communicators end only once no call can complete without it: none under way, and none that takes what has arrived.
 */

/** Reports losses, each at its time. */
export class Losses {
  /** By the lost rank. */
  readonly #pending = new Map<number, () => void>();
  readonly #mayComplete: (lost: number) => boolean;
  readonly #boundMs: number;
  #isReviewing = false;

  /** `mayComplete` is true while calls may complete without a lost rank; `boundMs` bounds the time until the report. */
  constructor(mayComplete: (lost: number) => boolean, boundMs: number) {
    this.#mayComplete = mayComplete;
    this.#boundMs = boundMs;
  }

  add(lost: number, report: () => void): void {
    this.#pending.set(lost, report);
    setTimeout(() => this.#report(lost), this.#boundMs).unref();
    this.review();
  }

  /** Reviews all of them once this turn of the event loop is over: what has arrived in it counts. */
  review(): void {
    if (this.#pending.size === 0 || this.#isReviewing) return;
    this.#isReviewing = true;
    setImmediate(() => {
      this.#isReviewing = false;
      for (const lost of [...this.#pending.keys()])
        if (!this.#mayComplete(lost)) this.#report(lost);
    });
  }

  /** Drops the pending reports. */
  clear(): void {
    this.#pending.clear();
  }

  #report(lost: number): void {
    const report = this.#pending.get(lost);
    this.#pending.delete(lost);
    report?.();
  }
}
