/** Communicators on their way out: they take no more calls, and may still have windows of symmetric memory. */
import type { NcclCommunicator } from "./communicators.ts";

/** The communicators of a session that have left, until they have ended. */
export class Leaving {
  readonly #ends = new Map<Promise<void>, readonly NcclCommunicator[]>();
  readonly #failed: (error: unknown) => void;

  /** `failed` gets the errors of an end. */
  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** They have left, and have ended when the promise settles. */
  add(comms: readonly NcclCommunicator[], ending: Promise<void>): void {
    const settled = ending.catch(this.#failed).finally(() => this.#ends.delete(settled));
    this.#ends.set(settled, comms);
  }

  get comms(): NcclCommunicator[] {
    return [...this.#ends.values()].flat();
  }

  /** Resolves when those that have left by now have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#ends.keys());
  }
}
