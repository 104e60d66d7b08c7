/**
 * A lock of one communicator for NCCL calls on other threads. NCCL takes one call on a communicator at a time: while another thread
 * is in one, JavaScript's thread makes none.
 */
import { runAll } from "../../../api/run-all.ts";
import { settlesWithin } from "../../../job/async.ts";

/** The calls in progress on other threads, and the steps that wait for them. */
export class CommLock {
  #holders = 0;
  #waiting: (() => void)[] = [];

  /** True while another thread is in a call. */
  get isHeld(): boolean {
    return this.#holders > 0;
  }

  /** Runs a call on another thread. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    this.#holders += 1;
    try {
      return await call();
    } finally {
      this.#holders -= 1;
      if (this.#holders === 0) this.release();
    }
  }

  /** True if no call is in progress, or if the calls end within `boundMs`. */
  async isFreeWithin(boundMs: number): Promise<boolean> {
    if (this.isHeld) await settlesWithin(boundMs, new Promise<void>((end) => this.whenFree(end)));
    return !this.isHeld;
  }

  /** Runs a step once no call is in progress, or the lock is released. */
  whenFree(step: () => void): void {
    this.#waiting.push(step);
  }

  /** Runs the waiting steps: the communicator ends under its calls. */
  release(): void {
    runAll(this.#waiting.splice(0));
  }
}
