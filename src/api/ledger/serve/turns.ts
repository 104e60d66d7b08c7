/**
 * The order in which a process hands over the calls that its one rank makes on several communicators: that in which they
 * were made.
 *
 * A call that first waits for ranks of other processes must not be overtaken by a later one on another communicator. They
 * may hand over the two the other way round, and on the streams of the ranks each would wait behind the other for ever.
 */
import type { Session } from "../../backend.ts";
import { Fifo } from "../calls/fifo.ts";

/** Serves the next call of one communicator; a promise means that it is at it. */
type Turn = () => undefined | Promise<void>;

/** The order of turns among the communicators of one world. */
export class Turns {
  readonly #waiting = new Fifo<Turn>();
  readonly #onTaken: () => void;
  #taken = false;
  #serving = false;

  /** `onTaken` is called when a call keeps the later ones waiting. */
  private constructor(onTaken: () => void) {
    this.#onTaken = onTaken;
  }

  /** `undefined` where several ranks of a world are in this process: their calls are handed over when all have made them. */
  static of(session: Session, onTaken: () => void): Turns | undefined {
    const { localRanks, size } = session;
    return localRanks?.length === 1 && size > 1 ? new Turns(onTaken) : undefined;
  }

  /** Some call keeps the later ones waiting. */
  get taken(): boolean {
    return this.#taken || this.#serving;
  }

  /** A communicator has one more call to be served: it is, once those that were made before it have been handed over. */
  take(turn: Turn): void {
    this.#waiting.push(turn);
    if (!this.taken) this.#serve();
  }

  #serve(): void {
    this.#serving = true;
    while (!this.#taken) {
      const turn = this.#waiting.shift();
      if (turn === undefined) break;
      this.#begin(turn);
    }
    this.#serving = false;
  }

  #begin(turn: Turn): void {
    const served = turn();
    if (served === undefined) return;
    this.#taken = true;
    this.#onTaken();
    void served.then(() => {
      this.#taken = false;
      this.#serve();
    });
  }
}
