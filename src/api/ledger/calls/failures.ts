/** The failed calls of each rank of a communicator, and whether they were observed. */
import type { CommInfo } from "../../backend.ts";
import { CommAbortedError } from "../../errors.ts";
import { type CommOp, failOp } from "../../op.ts";

/** Fails operations, and keeps the books. */
export class Failures {
  readonly #comm: CommInfo;
  /** Called for an unobserved failure. */
  readonly #onUnseen: () => void;
  readonly #counts: number[];
  /** By rank, a later call that was refused for a failure before it; `true` once closing has reported. */
  #told: (CommOp | true | undefined)[] = [];
  #unseen: CommOp[][];
  /** True when no rank has an unobserved failure; kept, because every call reads it. */
  #allSeen = true;
  /** Calls of which one half has failed already. */
  readonly #halfFailed = new WeakSet<CommOp>();

  constructor(comm: CommInfo, onUnseen: () => void) {
    this.#comm = comm;
    this.#onUnseen = onUnseen;
    this.#counts = comm.ranks.map(() => 0);
    this.#unseen = comm.ranks.map(() => []);
  }

  /** An operation failed; one that is over already did not. */
  add(op: CommOp, error: unknown): void {
    if (!op.pending) return;
    this.note(op);
    failOp(op, error);
  }

  /** Enters an operation that failed, or is about to. */
  note(op: CommOp): void {
    if (!this.#halfFailed.has(op.callOp)) this.#counts[op.rank] = this.count(op.rank) + 1;
    if (op.callOp !== op) this.#halfFailed.add(op.callOp);
    if (!op.isObserved) {
      this.#unseen[op.rank]?.push(op);
      this.#allSeen = false;
      this.#onUnseen();
    }
  }

  /** Fails a call that is refused for an earlier failure: its error reports that one. */
  refuse(op: CommOp, error: unknown): void {
    if (!this.#isTold(op.rank)) this.#told[op.rank] = op;
    this.add(op, error);
  }

  /** The end of a rank reported its failures. */
  tell(rank: number): void {
    this.#told[rank] = true;
  }

  /** `poison` of a rank with failures that neither later calls nor closing have reported. */
  untold(rank: number): CommAbortedError | undefined {
    return this.#isTold(rank) ? undefined : this.poison(rank);
  }

  /** Number of a rank's calls that have failed, since the communicator was made. */
  count(rank: number): number {
    return this.#counts[rank] as number;
  }

  /** The error that an unobserved failure gives to all later calls of its rank. */
  poison(rank: number): CommAbortedError | undefined {
    if (this.#allSeen) return undefined;
    const unseen = this.#unseen[rank] as CommOp[];
    if (unseen.length === 0) return undefined;
    const still = unseen.filter((op) => !op.isObserved);
    this.#unseen[rank] = still;
    this.#allSeen = this.#unseen.every((ops) => ops.length === 0);
    const first = still[0];
    if (first === undefined) return undefined;
    const { name, ranks } = this.#comm;
    const what = first.call < 0 ? "a call" : `call ${first.call}`;
    return new CommAbortedError(
      {
        headline: `${what} on "${name}" failed and was never awaited`,
        hint: "await every operation, or handle its rejection",
      },
      { rank, size: ranks.length, comm: name, call: first.call, cause: first.error },
    );
  }

  /** Nothing is held against anybody any more; the counts go on. */
  forgive(): void {
    this.#unseen = this.#comm.ranks.map(() => []);
    this.#allSeen = true;
    this.#told = [];
  }

  #isTold(rank: number): boolean {
    const told = this.#told[rank];
    return told === true || told?.isObserved === true;
  }
}
