/**
 * Rows of one turn: each rank's calls stand in a lane, and what all lanes have at the same place is a call of all ranks.
 *
 * The last rank's calls complete row after row, with a driver at work between them that leaves nothing of ours in the
 * processor's caches: such a call looks at as little as can be. It was compared when it came, whether buffers live is asked
 * only if any were disposed since, and what the other ranks' operations are told waits for the end of the turn.
 */
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { Agreement } from "./agreement.ts";
import type { Going } from "./going.ts";
import { HandedRows, posted, type RowTable } from "./handed-rows.ts";
import { failServed } from "./outcomes.ts";
import type { Posting } from "./posting.ts";
import type { RunsHost } from "./runs.ts";
import { serveAgain } from "./serve.ts";

/** What is asked of the ledger. */
export interface RowsHost extends RunsHost {
  /** Takes a rank's call, which has its number, as one that was posted. */
  place(rank: number, posting: Posting, number: number): void;
}

/** One rank's calls of a turn. */
export class Lane implements Going {
  readonly key = {};
  readonly rank: number;
  readonly ops: CommOp[] = [];
  /** By row: what the calls were made from that came before the first rank's, and are compared with it when it comes. */
  readonly early = new Map<number, Prepared<unknown>>();
  /** The turn is over, or something else was asked of the ledger. */
  isOver = false;
  readonly #turn: TurnOfRows;
  readonly #at: number;
  readonly #first: number;
  readonly #timeoutMs: number | undefined;

  constructor(turn: TurnOfRows, at: number, rank: number) {
    this.#turn = turn;
    this.#at = at;
    this.rank = rank;
    this.#first = turn.first;
    this.#timeoutMs = turn.timeoutMs;
  }

  takes(timeoutMs: number | undefined): boolean {
    return !this.isOver && this.#timeoutMs === timeoutMs;
  }

  goOn(prepared: Prepared<unknown>, op: CommOp): boolean {
    const row = this.ops.length;
    if (prepared.made === undefined || !this.#turn.fits(row, this.#at, prepared)) return false;
    op.assign(this.#first + row);
    this.ops.push(op);
    if (this.#turn.came(row)) op.submit();
    return true;
  }
}

/** The rows of one turn. */
export class TurnOfRows implements RowTable {
  readonly ranks: readonly Lane[];
  readonly agreements: Agreement[] = [];
  /** Number of the first row. */
  readonly first: number;
  readonly timeoutMs: number | undefined;
  readonly #host: RowsHost;
  /** Ends the turn. */
  readonly #seal: () => void;
  /** How many ranks have come to each row. */
  readonly #came: number[] = [];
  /** Some rank has come to a row before the first one. */
  #hasEarly = false;
  /** How many rows were handed to the session. */
  #handed = 0;
  /** The last of them, with all that it was handed right behind. */
  #rows: HandedRows | undefined;

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
    this.ranks = local.map((rank, at) => new Lane(this, at, rank));
  }

  /** False for a call that was not made before with the others of its row, as far as those have come. */
  fits(row: number, at: number, prepared: Prepared<unknown>): boolean {
    const known = this.agreements[row];
    if (known !== undefined) return known.prepared[at] === prepared;
    return at === 0 ? this.#leads(row, prepared) : this.#waits(row, at, prepared);
  }

  /** What rows were compared as stands with the first rank's calls. */
  #leads(row: number, { agreement }: Prepared<unknown>): boolean {
    if (agreement?.work === undefined) return false;
    if (this.#hasEarly) {
      for (const [at, { early }] of this.ranks.entries()) {
        if ((early.get(row) ?? agreement.prepared[at]) !== agreement.prepared[at]) return false;
      }
    }
    this.agreements.push(agreement);
    return true;
  }

  #waits(row: number, at: number, prepared: Prepared<unknown>): boolean {
    this.#hasEarly = true;
    this.ranks[at]?.early.set(row, prepared);
    return true;
  }

  /** A call has come to a row. True where it was the last one and the row was handed over behind others. */
  came(row: number): boolean {
    const came = (this.#came[row] ?? 0) + 1;
    this.#came[row] = came;
    return came === this.ranks.length && this.#hand(this.agreements[row] as Agreement, row);
  }

  #hand(known: Agreement, row: number): boolean {
    if (!known.lives) {
      this.#seal();
      return false;
    }
    this.#handed = row + 1;
    if (this.#rows?.takesMore === true) return this.#handBehind(this.#rows, known, row);
    this.#handApart(known, row);
    return false;
  }

  #handBehind(rows: HandedRows, known: Agreement, row: number): boolean {
    const { serve } = this.#host;
    try {
      serve.session.enqueueBehind?.(known, this.first + row);
    } catch (error) {
      this.#seal();
      failServed(serve, this.#postings(row), error);
      return false;
    }
    rows.to = row + 1;
    return true;
  }

  #handApart(known: Agreement, row: number): void {
    const { serve, watch } = this.#host;
    this.#rows?.submitted();
    const rows = new HandedRows(this, row, this.timeoutMs);
    for (const posting of rows.postings) watch(posting);
    serveAgain(serve, rows, known, this.first + row);
    this.#rows = rows.queue && rows;
  }

  /** Tells the operations of rows what became of them, and posts the calls that are no row. */
  end(): void {
    this.#rows?.submitted();
    for (let row = this.#handed; row < this.#came.length; row++) {
      for (const posting of this.#postings(row)) {
        this.#host.place(posting.op.rank, posting, this.first + row);
      }
    }
  }

  /** Those of the ranks that have come to a row. */
  #postings(row: number): readonly Posting[] {
    return this.ranks.flatMap(({ ops, early }, at) => {
      const op = ops[row];
      const prepared = this.agreements[row]?.prepared[at] ?? early.get(row);
      if (op === undefined || prepared === undefined) return [];
      return [posted(prepared, op, this.timeoutMs)];
    });
  }
}
