/** Counts of a rank's calls on a communicator, and of its sent bytes. */
import type { RankCall } from "../backend.ts";
import { bytesSent } from "./prepared.ts";

/** Calls of one collective. */
export interface Tally {
  calls: number;
  sendBytes: number;
}

/** Counts the calls of one rank. */
export class Books {
  readonly #tallies = new Map<string, Tally>();

  /** A call was posted. */
  enter(call: RankCall): void {
    const tally = this.of(call.collective);
    tally.calls++;
    tally.sendBytes += bytesSent(call);
  }

  /** Where the calls of a collective are counted. */
  of(collective: string): Tally {
    let tally = this.#tallies.get(collective);
    if (tally === undefined) {
      tally = { calls: 0, sendBytes: 0 };
      this.#tallies.set(collective, tally);
    }
    return tally;
  }

  /** The counts so far. */
  totals(): { calls: Record<string, number>; sendBytes: number } {
    let sendBytes = 0;
    for (const tally of this.#tallies.values()) sendBytes += tally.sendBytes;
    const counts = Array.from(
      this.#tallies,
      ([collective, { calls }]) => [collective, calls] as const,
    );
    return { calls: Object.fromEntries(counts.filter(([, calls]) => calls > 0)), sendBytes };
  }
}
