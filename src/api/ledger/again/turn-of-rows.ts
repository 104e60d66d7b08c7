/**
 * Rows of one turn: each rank's calls stand in a lane, and what all lanes have at the same place is a call of all ranks.
 *
 * The last rank's calls complete row after row, with a driver at work between them that leaves nothing of ours in the
 * processor's caches: such a call reads as little as possible. It is compared when it comes, liveness of buffers is checked
 * only after disposals, and operations are marked as submitted at the end of the turn.
 */
import type { Prepared } from "../../member/prepared.ts";
import { assignOp, type CommOp } from "../../op.ts";
import type { Agreement } from "../agree/agreement.ts";
import type { Posting } from "../calls/posting.ts";
import { failServed } from "../serve/outcomes.ts";
import { serveAgain } from "../serve/serve.ts";
import type { Going } from "./going.ts";
import { HandedRows, type RowTable } from "./handed-rows.ts";
import { repeated } from "./repeated.ts";
import type { RunsHost } from "./runs.ts";

/** The ledger's side. */
export interface RowsHost extends RunsHost {
  /** Takes a rank's call, which has its number, as one that was posted. */
  place(rank: number, posting: Posting, number: number): void;
}

/** One rank's calls of a turn. */
export class Lane implements Going {
  readonly key = {};
  readonly rank: number;
  /** Its place among the lanes. */
  readonly at: number;
  readonly ops: CommOp[] = [];
  /** By row: what the calls were made from that came before the first lane's, and are compared with it when it comes. */
  readonly early = new Map<number, Prepared<unknown>>();
  /** The turn is over, or another call entered the ledger. */
  isOver = false;
  readonly #turn: TurnOfRows;
  readonly #first: number;
  readonly #timeoutMs: number | undefined;

  constructor(turn: TurnOfRows, at: number, rank: number) {
    this.#turn = turn;
    this.at = at;
    this.rank = rank;
    this.#first = turn.first;
    this.#timeoutMs = turn.timeoutMs;
  }

  takes(timeoutMs: number | undefined): boolean {
    return !this.isOver && this.#timeoutMs === timeoutMs;
  }

  goOn(prepared: Prepared<unknown>, op: CommOp): boolean {
    const row = this.ops.length;
    if (prepared.made === undefined || !this.#turn.admits(this, row, prepared)) return false;
    assignOp(op, this.#first + row);
    this.ops.push(op);
    this.#turn.came(row);
    return true;
  }
}

/** The rows of one turn. */
export class TurnOfRows implements RowTable {
  readonly lanes: readonly Lane[];
  readonly agreements: Agreement[] = [];
  /** Number of the first row. */
  readonly first: number;
  readonly timeoutMs: number | undefined;
  readonly #host: RowsHost;
  /** Ends the turn. */
  readonly #seal: () => void;
  /** Numbers of ranks that have come to each row. */
  readonly #came: number[] = [];
  /** Some call has come before the first lane's. */
  #hasEarly = false;
  /** Number of rows that were handed to the session. */
  #handed = 0;
  /** In the order in which the session took them; further rows go behind the last of them. */
  readonly #taken: HandedRows[] = [];
  #last: HandedRows | undefined;

  constructor(
    host: RowsHost,
    local: readonly number[],
    first: number,
    timeoutMs: number | undefined,
    seal: () => void,
  ) {
    this.#host = host;
    this.first = first;
    this.timeoutMs = timeoutMs;
    this.#seal = seal;
    this.lanes = local.map((rank, at) => new Lane(this, at, rank));
  }

  /** Lets a call into a row, unless it is none that was made before with the others there, as far as those have come. */
  admits(lane: Lane, row: number, prepared: Prepared<unknown>): boolean {
    const known = this.agreements[row];
    if (known !== undefined) return known.prepared[lane.at] === prepared;
    if (lane.at === 0) return this.#begins(row, prepared);
    lane.early.set(row, prepared);
    this.#hasEarly = true;
    return true;
  }

  /** The agreement of calls is kept with the first lane's. */
  #begins(row: number, { agreement }: Prepared<unknown>): boolean {
    if (agreement?.planned === undefined) return false;
    if (this.#hasEarly) {
      for (const { at, early } of this.lanes) {
        if (early.has(row) && early.get(row) !== agreement.prepared[at]) return false;
      }
    }
    this.agreements.push(agreement);
    return true;
  }

  /** A call has come to a row: where it was the last one, the row is handed over. */
  came(row: number): void {
    const came = (this.#came[row] ?? 0) + 1;
    this.#came[row] = came;
    if (came === this.lanes.length) this.#hand(this.agreements[row] as Agreement, row);
  }

  #hand(known: Agreement, row: number): void {
    if (!known.stillLives()) {
      this.#seal();
      return;
    }
    this.#handed = row + 1;
    if (this.#last?.acceptsMore === true) this.#handBehind(this.#last, known, row);
    else this.#handApart(known, row);
  }

  #handBehind(rows: HandedRows, known: Agreement, row: number): void {
    const { serve } = this.#host;
    try {
      serve.session.appendRepeated?.(known, this.first + row);
    } catch (error) {
      this.#seal();
      failServed(serve, this.#postings(row), error);
      return;
    }
    rows.to = row + 1;
  }

  #handApart(known: Agreement, row: number): void {
    const { serve, watch } = this.#host;
    const rows = new HandedRows(this, row, this.timeoutMs);
    for (const posting of rows.postings) watch(posting);
    serveAgain(serve, rows, known, this.first + row);
    if (rows.queue === undefined) return;
    this.#taken.push(rows);
    this.#last = rows;
  }

  /**
   * Posts the calls that are no row, and marks the operations of the others as submitted: that comes last, since
   * their callbacks may make calls.
   */
  end(): void {
    for (let row = this.#handed; row < this.#came.length; row++) {
      for (const posting of this.#postings(row)) {
        this.#host.place(posting.op.rank, posting, this.first + row);
      }
    }
    for (const rows of this.#taken) rows.tell();
  }

  /** Those of the ranks that have come to a row. */
  #postings(row: number): readonly Posting[] {
    return this.lanes.flatMap(({ ops, early, at }) => {
      const op = ops[row];
      const prepared = this.agreements[row]?.prepared[at] ?? early.get(row);
      if (op === undefined || prepared === undefined) return [];
      return [repeated(prepared, op, this.timeoutMs)];
    });
  }
}
