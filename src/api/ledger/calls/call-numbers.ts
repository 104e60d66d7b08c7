/** Numbers the calls of each rank of a communicator: collective ones, and apart from them sends and receives. */
import type { CommInfo } from "../../backend.ts";
import { assignOp, type CommOp } from "../../op.ts";
import type { TransferPosting } from "./posting.ts";

/** The next number of every rank. */
export class CallNumbers {
  readonly #collective: number[];
  readonly #messages: number[];
  readonly #comm: CommInfo;
  /** The next of the messages to, and from, a rank of another process, which numbers them alike: by both ranks. */
  readonly #next = { send: new Map<number, number>(), recv: new Map<number, number>() };

  constructor(comm: CommInfo) {
    const size = comm.ranks.length;
    this.#comm = comm;
    this.#collective = new Array<number>(size).fill(0);
    this.#messages = new Array<number>(size).fill(0);
  }

  /** Numbers a rank's next collective call. */
  collective(rank: number, op: CommOp): number {
    const number = this.#collective[rank] as number;
    this.#collective[rank] = number + 1;
    assignOp(op, number);
    return number;
  }

  /** The number of a rank's next collective call. */
  next(rank: number): number {
    return this.#collective[rank] as number;
  }

  /** The number of a rank's next send, receive or both. */
  nextMessage(rank: number): number {
    return this.#messages[rank] as number;
  }

  /** A rank has made the collective calls before `number`. */
  advance(rank: number, number: number): void {
    this.#collective[rank] = number;
  }

  /** Numbers a rank's next sends and receives; both halves of a call have the same number of a call. */
  messages(rank: number, transfers: readonly TransferPosting[]): void {
    const { local, ranks } = this.#comm;
    const isHere = local.length === ranks.length;
    for (const transfer of transfers) {
      const { op, direction, peer } = transfer;
      this.#message(rank, op);
      if (isHere || local.includes(peer)) continue;
      const both = rank * ranks.length + peer;
      transfer.number = this.#next[direction].get(both) ?? 0;
      this.#next[direction].set(both, transfer.number + 1);
    }
  }

  #message(rank: number, op: CommOp): void {
    const { call } = op.callOp;
    if (call >= 0) {
      assignOp(op, call);
      return;
    }
    const number = this.#messages[rank] as number;
    this.#messages[rank] = number + 1;
    assignOp(op, number);
  }

  /** Back to 0. */
  reset(): void {
    this.#collective.fill(0);
    this.#messages.fill(0);
  }
}
