/** What a rank has called on a communicator, and how much it has sent. */
import type { RankCall } from "../backend.ts";
import { bytesSent } from "./prepared.ts";

/** Counts the calls of one rank. */
export class Books {
  readonly #calls: Record<string, number> = {};
  #sendBytes = 0;

  /** A call was posted. */
  enter(call: RankCall): void {
    const { collective } = call;
    this.#calls[collective] = (this.#calls[collective] ?? 0) + 1;
    this.#sendBytes += bytesSent(call);
  }

  /** The counts so far. */
  totals(): { calls: Record<string, number>; sendBytes: number } {
    return { calls: { ...this.#calls }, sendBytes: this.#sendBytes };
  }
}
