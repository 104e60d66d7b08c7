/** Calls that are made again: one entry in the queue, and one who waits, however many they are. */
import type { RankCall } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import { QueuedCall } from "./call-queue.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";

/** Those that were handed to the session one right behind the other: what each costs beyond them is its operations. */
export class RepeatedCalls extends QueuedCall {
  /** What every one of them has to be done in: all are done at once, so that the deadline of the first is that of all. */
  readonly timeoutMs: number | undefined;
  readonly #ops: CommOp[] = [];
  /** What their calls were made from. */
  readonly #prepared: Prepared<unknown>[] = [];

  constructor(timeoutMs: number | undefined) {
    super();
    this.timeoutMs = timeoutMs;
  }

  /** A rank's call is made from `prepared`, which has been made a call of before. */
  add(prepared: Prepared<unknown>, op: CommOp): void {
    this.#ops.push(op);
    this.#prepared.push(prepared);
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
