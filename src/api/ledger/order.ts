/**
 * The order of calls across communicators.
 *
 * A call that first waits for ranks of other processes must not be overtaken by a later one on another communicator. They may
 * submit the two in the other order, and on the streams of the ranks each would wait behind the other for ever.
 */
import type { Session } from "../backend.ts";
import { Fifo } from "./queues.ts";

/** Serves the next call of one communicator; a promise means that it is at it. */
type DispatchNext = () => undefined | Promise<void>;

/** The order of turns among the communicators of one world. */
export class SubmissionOrder {
  readonly #waiting = new Fifo<DispatchNext>();
  #blocked = false;
  #dispatching = false;

  /** `undefined` where several ranks of a world are in this process: their calls are submitted when all have made them. */
  static forSession(session: Session): SubmissionOrder | undefined {
    const { localRanks, size } = session.info;
    return localRanks.length === 1 && size > 1 ? new SubmissionOrder() : undefined;
  }

  /** Some call keeps the later ones waiting. */
  get isBlocked(): boolean {
    return this.#blocked || this.#dispatching;
  }

  /** Requests the dispatch of one more call: it runs once all calls made before it have been submitted. */
  request(turn: DispatchNext): void {
    this.#waiting.push(turn);
    if (!this.isBlocked) this.#dispatch();
  }

  #dispatch(): void {
    this.#dispatching = true;
    while (!this.#blocked) {
      const turn = this.#waiting.shift();
      if (turn === undefined) break;
      this.#begin(turn);
    }
    this.#dispatching = false;
  }

  #begin(turn: DispatchNext): void {
    const served = turn();
    if (served === undefined) return;
    this.#blocked = true;
    void served.then(() => {
      this.#blocked = false;
      this.#dispatch();
    });
  }
}
