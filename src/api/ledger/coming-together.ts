/**
 * Calls that wait until ranks of other processes have made them too, because handing them over would block this process
 * until then: no deadline, no signal and no loss would be heard.
 */
import type { Convening } from "../backend.ts";
import { abandon, isPending } from "./outcomes.ts";
import type { Posting } from "./posting.ts";
import type { ServeHost } from "./serve-host.ts";
import { errorByCall } from "./unserved.ts";

/** What a communicator's calls wait for: one after the other. */
export class ComingTogether {
  #open: AbortController | undefined;

  /** A call is waiting. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** It has been given up: the others are told, unless they have come by then. */
  giveUp(): void {
    this.#open?.abort();
  }

  /**
   * Waits for the others, and goes on with `go`. Where a rank of this process has given the call up by then, the
   * communicator is over here; others that have come already are blocked until they meet it, which `anyway` is for.
   */
  async wait<T>(
    host: ServeHost,
    convening: Convening,
    postings: readonly Posting[],
    { go, anyway }: { readonly go: () => T; readonly anyway: () => void },
  ): Promise<T | undefined> {
    const open = new AbortController();
    this.#open = open;
    let together = false;
    try {
      together = await convening(open.signal);
    } catch (error) {
      const errorOf = errorByCall(error, host);
      for (const posting of postings) host.fail(posting, errorOf(posting));
    } finally {
      this.#open = undefined;
    }
    const givenUp = postings.find((posting) => !isPending(posting));
    if (together && givenUp === undefined) return go();
    try {
      if (together) anyway();
    } catch {
      // Its own call has failed before.
    }
    abandon(host, givenUp ?? (postings[0] as Posting));
    return undefined;
  }
}
