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
export class Run extends QueuedCall implements PromiseLike<unknown> {
  readonly rank: number;
  /** What every call of it has to be done in. */
  readonly timeoutMs: number | undefined;
  /** Number of the call that comes next. */
  next: number;
  #ops: CommOp[] = [];
  /** What their calls were made from. */
  #prepared: Prepared<unknown>[] = [];
  #last: CommOp | undefined;

  constructor(rank: number, first: number, timeoutMs: number | undefined) {
    super();
    this.rank = rank;
    this.timeoutMs = timeoutMs;
    this.next = first;
  }

  /** The next call is made from `prepared`, which has been made a call of before. */
  add(prepared: Prepared<unknown>, op: CommOp): void {
    this.#ops.push(op);
    this.#prepared.push(prepared);
    this.next++;
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

  /** All are done at once; who read their memory then holds on to the last one only. */
  override settled(error?: unknown): void {
    super.settled(error);
    this.#last = this.#ops.at(-1);
    this.#ops = [];
    this.#prepared = [];
  }

  // biome-ignore lint/suspicious/noThenProperty: memory waits for whoever used it last, be it one call or many
  then<A = unknown, B = never>(
    onDone?: ((value: unknown) => A | PromiseLike<A>) | null,
    onFailed?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const last = this.#last ?? (this.#ops.at(-1) as CommOp);
    return last.then(onDone, onFailed);
  }
}
