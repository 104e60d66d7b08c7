/** The waits of calls in the store of their job: they end with their communicator. */
import type { CommInfo } from "../../../api/index.ts";

/** Bounds of such a wait: by itself it lasts as long as a timer can. Deadlines of calls, closing and losses end it. */
export interface StoreWait {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The waits of one process. */
export class StoreWaits {
  /** By the communicator's number: that of all ranks is one object to the session and another to its callers. */
  readonly #open = new Map<number, Set<AbortController>>();

  /** Waits on behalf of a communicator; what is left of it ends with `wait`. */
  async on<T>({ id }: CommInfo, wait: (bounds: StoreWait) => Promise<T>): Promise<T> {
    const over = new AbortController();
    const open = this.#open.get(id) ?? new Set();
    this.#open.set(id, open.add(over));
    try {
      return await wait({ timeoutMs: 2 ** 31 - 1, signal: over.signal });
    } finally {
      open.delete(over);
      if (open.size === 0) this.#open.delete(id);
      over.abort();
    }
  }

  /** The communicator is over. */
  giveUp({ id }: CommInfo): void {
    for (const wait of this.#open.get(id) ?? []) wait.abort();
  }
}
