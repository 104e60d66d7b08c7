/** Rows of calls that are made again: one entry in the queue, and one who waits, however many they are. */
import type { RankCall } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { Agreement } from "./agreement.ts";
import { QueuedCall } from "./call-queue.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";

/** The calls of a turn as they came: rows across the ranks that live in this process. */
export interface RowTable {
  /** Each rank's operations, by row. */
  readonly ranks: readonly { readonly ops: readonly CommOp[] }[];
  /** What the calls of each row were compared as. */
  readonly agreements: readonly Agreement[];
}

/**
 * Those that were handed to the session one right behind the other. They are told apart by where they begin and end: a
 * further row is one number more, and what the ranks' operations are told of it waits until no driver is at work between.
 */
export class HandedRows extends QueuedCall {
  readonly #table: RowTable;
  readonly #from: number;
  readonly #timeoutMs: number | undefined;
  /** The row behind the last one. */
  to: number;

  constructor(table: RowTable, row: number, timeoutMs: number | undefined) {
    super();
    this.#table = table;
    this.#from = row;
    this.#timeoutMs = timeoutMs;
    this.to = row + 1;
  }

  get postings(): readonly Posting[] {
    const { ranks, agreements } = this.#table;
    const postings: Posting[] = [];
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = agreements[row] as Agreement;
      for (const [at, { ops }] of ranks.entries()) {
        postings.push(
          posted(prepared[at] as Prepared<unknown>, ops[row] as CommOp, this.#timeoutMs),
        );
      }
    }
    return postings;
  }

  submitted(): void {
    for (const { ops } of this.#table.ranks) {
      for (let row = this.#from; row < this.to; row++) ops[row]?.submit();
    }
  }

  complete(): void {
    const { ranks, agreements } = this.#table;
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = agreements[row] as Agreement;
      for (let at = 0; at < ranks.length; at++) {
        const { made, resultOf } = prepared[at] as Prepared<unknown>;
        ranks[at]?.ops[row]?.complete(resultOf(made as RankCall));
      }
    }
  }
}

/** The posting of a call that was made before. */
export function posted(
  prepared: Prepared<unknown>,
  op: CommOp,
  timeoutMs: number | undefined,
): Posting {
  return repeated(prepared.made as RankCall, prepared, op, timeoutMs);
}
