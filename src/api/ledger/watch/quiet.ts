/** When a ledger has nothing to do any more: those who wait for that are told. */
import type { Monitor } from "./monitor.ts";

export class Quiet {
  readonly #monitor: Monitor;
  readonly #atRest: () => boolean;
  #settling = 0;
  #waiting: (() => void)[] = [];

  /** `atRest` says whether no call is at work; the monitor is told whenever ranks were woken. */
  constructor(monitor: Monitor, atRest: () => boolean) {
    this.#monitor = monitor;
    this.#atRest = atRest;
  }

  /** Resolves when no call is at work or about to wake its ranks. */
  reached(): Promise<void> {
    if (this.#isReached) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Something is over. */
  look(): void {
    if (this.#waiting.length === 0 || !this.#isReached) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Two microtasks from now, when the last rank to post has had its `await` reach the operation. */
  later(settle: () => void): void {
    this.#settling++;
    queueMicrotask(() =>
      queueMicrotask(() => {
        this.#settling--;
        settle();
        this.#monitor.moved();
        this.look();
      }),
    );
  }

  get #isReached(): boolean {
    return this.#settling === 0 && this.#atRest();
  }
}
