/**
 * Calls that a rank makes again one right behind the other, as loops do.
 *
 * They are one entry in the queue, and one who waits, however many they are: what a call costs beyond them is its operation.
 */
import type { RankCall } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import { QueuedCall } from "./call-queue.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";

/** Calls in a row of the only rank that a process has on a communicator. */
export class Run extends QueuedCall {
  readonly rank: number;
  /** What every call of it has to be done in. */
  readonly timeoutMs: number | undefined;
  /** Number of the call that comes next. */
  next: number;
  readonly #ops: CommOp[] = [];
  /** What their calls were made from. */
  readonly #prepared: Prepared<unknown>[] = [];

  constructor(rank: number, first: number, timeoutMs: number | undefined) {
    super();
    this.rank = rank;
    this.timeoutMs = timeoutMs;
    this.next = first;
  }

  /** Whether a call with such a deadline may go on with it. */
  takes(timeoutMs: number | undefined): boolean {
    return this.takesMore && this.timeoutMs === timeoutMs;
  }

  /** Its first call, which has its number, is made from `prepared`, which has been made a call of before. */
  begin(prepared: Prepared<unknown>, op: CommOp): void {
    this.#ops.push(op);
    this.#prepared.push(prepared);
    this.next++;
  }

  /** The next one was submitted. */
  add(prepared: Prepared<unknown>, op: CommOp): void {
    op.submittedAs(this.next);
    this.begin(prepared, op);
  }

  get postings(): readonly Posting[] {
    return this.#ops.map((op, at) => {
      const prepared = this.#prepared[at] as Prepared<unknown>;
      return repeated(prepared.made as RankCall, prepared, op, this.timeoutMs);
    });
  }

  submitted(): void {
    for (const op of this.#ops) op.submit();
  }

  complete(): void {
    for (let at = 0; at < this.#ops.length; at++) {
      const { made, resultOf } = this.#prepared[at] as Prepared<unknown>;
      this.#ops[at]?.complete(resultOf(made as RankCall));
    }
  }
}
