/** Numbers the calls of each rank of a communicator: collective ones, and apart from them sends and receives. */
import type { CommOp } from "../op.ts";

/** The next number of every rank. */
export class CallNumbers {
  readonly #collective: number[];
  readonly #messages: number[];

  constructor(size: number) {
    this.#collective = new Array<number>(size).fill(0);
    this.#messages = new Array<number>(size).fill(0);
  }

  /** Numbers a rank's next collective call. */
  collective(rank: number, op: CommOp): number {
    const number = this.#collective[rank] as number;
    this.#collective[rank] = number + 1;
    op.assign(number);
    return number;
  }

  /** The number of a rank's next collective call. */
  next(rank: number): number {
    return this.#collective[rank] as number;
  }

  /** A rank has made the collective calls before `number`. */
  advance(rank: number, number: number): void {
    this.#collective[rank] = number;
  }

  /** Numbers a rank's next send or receive; both halves of a call have the same. */
  message(rank: number, op: CommOp): void {
    const { call } = op.callOp;
    if (call >= 0) {
      op.assign(call);
      return;
    }
    const number = this.#messages[rank] as number;
    this.#messages[rank] = number + 1;
    op.assign(number);
  }

  /** Back to 0. */
  reset(): void {
    this.#collective.fill(0);
    this.#messages.fill(0);
  }
}
