/** Rows of repeated calls: one entry in the queue, and one `Completion`, for any number of them. */
import type { RankCall } from "../../backend.ts";
import type { Prepared } from "../../member/prepared.ts";
import { type CommOp, completeOp, submitOp } from "../../op.ts";
import type { Agreement } from "../agree/agreement.ts";
import type { Posting } from "../calls/posting.ts";
import { QueuedCall } from "../serve/call-queue.ts";
import { repeated } from "./repeated.ts";

/** The calls of a turn as they came: rows across the ranks that live in this process. */
export interface RowTable {
  /** Each rank's operations, by row. */
  readonly lanes: readonly { readonly ops: readonly CommOp[] }[];
  /** The agreement of the calls of each row. */
  readonly agreements: readonly Agreement[];
}

/** Those that were handed to the session one right behind the other: a further row is one number more. */
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
    const { lanes, agreements } = this.#table;
    const postings: Posting[] = [];
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = agreements[row] as Agreement;
      for (const [at, { ops }] of lanes.entries()) {
        const made = prepared[at] as Prepared<unknown>;
        postings.push(repeated(made, ops[row] as CommOp, this.#timeoutMs));
      }
    }
    return postings;
  }

  submitted(): void {
    // `tell` does it for all of them together.
  }

  /** Submits the operations of these rows. */
  tell(): void {
    for (let row = this.#from; row < this.to; row++) {
      for (const { ops } of this.#table.lanes) submitOp(ops[row] as CommOp);
    }
  }

  complete(): void {
    const { lanes, agreements } = this.#table;
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = agreements[row] as Agreement;
      for (let at = 0; at < lanes.length; at++) {
        const { made, resultOf } = prepared[at] as Prepared<unknown>;
        completeOp(lanes[at]?.ops[row] as CommOp, resultOf(made as RankCall));
      }
    }
  }
}
