/**
 * Calls that wait until ranks of other processes have made them too, because handing them over would block this process
 * until then: no deadline, no signal and no loss would be heard.
 */
import type { PeerBarrier } from "../../backend.ts";

/** The meetings of a communicator's calls: one after the other. */
export class ComingTogether {
  #open: AbortController | undefined;

  /** A call is waiting. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** It has been given up: the others hear of it, unless they have come by then. */
  giveUp(): void {
    this.#open?.abort();
  }

  /** Waits for the others; says whether they have come. */
  async wait(convening: PeerBarrier): Promise<boolean> {
    const open = new AbortController();
    this.#open = open;
    try {
      return await convening(open.signal);
    } finally {
      this.#open = undefined;
    }
  }
}
