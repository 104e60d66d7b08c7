/** The end of a ledger's work, for waits for it. */

import type { Monitor } from "./monitor.ts";
import type { Settling } from "./settling.ts";

export class Quiet {
  readonly #monitor: Monitor;
  readonly #wake: Settling;
  readonly #atRest: () => boolean;
  #settling = 0;
  #waiting: (() => void)[] = [];

  /** `atRest` is true where no call is at work; the monitor notes that ranks were woken. */
  constructor(monitor: Monitor, wake: Settling, atRest: () => boolean) {
    this.#monitor = monitor;
    this.#wake = wake;
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

  /** Runs `settle` when it is time to wake ranks; `work` says how much their calls had to do. */
  later(settle: () => void, work: number): void {
    this.#settling++;
    this.#wake.later(() => {
      this.#settling--;
      settle();
      this.#monitor.moved();
      this.look();
    }, work);
  }

  get #isReached(): boolean {
    return this.#settling === 0 && this.#atRest();
  }
}
