/**
 * The calls of one communicator on threads other than JavaScript's. NCCL takes no two calls on one communicator at a time: while
 * one is under way there, no call of NCCL is made for the communicator here.
 */
import { inTurn } from "../common/async.ts";

/** Those that are under way, and what waits for them. */
export class OtherThreads {
  #open = 0;
  #waiting: (() => void)[] = [];

  /** NCCL is at work for the communicator. */
  get areAtWork(): boolean {
    return this.#open > 0;
  }

  /** Makes a call there. */
  async during<T>(call: () => Promise<T>): Promise<T> {
    this.#open += 1;
    try {
      return await call();
    } finally {
      this.#open -= 1;
      if (this.#open === 0) this.letGo();
    }
  }

  /** Does something when the last of those that are under way has ended, or nothing is to wait for them any more. */
  afterwards(step: () => void): void {
    this.#waiting.push(step);
  }

  /** Nothing waits for them any more: the communicator ends under them. */
  letGo(): void {
    inTurn(this.#waiting.splice(0));
  }
}
