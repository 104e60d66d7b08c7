/**
 * The calls of one communicator on threads other than JavaScript's. NCCL takes no two calls on one communicator at a time: while
 * one is under way there, no call of NCCL is made for the communicator here.
 */
import { runAll } from "../common/async.ts";

/** Those that are under way, and what waits for them. */
export class CommLock {
  #holders = 0;
  #waiting: (() => void)[] = [];

  /** NCCL is at work for the communicator. */
  get isHeld(): boolean {
    return this.#holders > 0;
  }

  /** Makes a call there. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    this.#holders += 1;
    try {
      return await call();
    } finally {
      this.#holders -= 1;
      if (this.#holders === 0) this.release();
    }
  }

  /** Does something when the last of those that are under way has ended, or nothing is to wait for them any more. */
  whenFree(step: () => void): void {
    this.#waiting.push(step);
  }

  /** Nothing waits for them any more: the communicator ends under them. */
  release(): void {
    runAll(this.#waiting.splice(0));
  }
}
