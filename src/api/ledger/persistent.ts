/**
 * Repeated calls: a rank makes a call again with the same arguments while earlier calls are still open.
 *
 * Such calls of one turn of the event loop form a batch. A batch has one entry in the submission queue, one deadline and one
 * `Completion`, and each call is appended to it without a comparison or a place in a queue of its own.
 */

import type { CommInfo, RankCall, Session } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import { assignOp, type CommOp, completeOp, submitOp, submitOpAs } from "../op.ts";
import { serveAgain } from "./dispatch.ts";
import type { Agreement } from "./matched-call.ts";
import { deadlineFrom, type Posting } from "./posting.ts";
import type { CallNumbers } from "./queues.ts";
import { failServed, type ServeHost } from "./settle.ts";
import { QueuedCall } from "./submission.ts";

/** Calls under way, as long as no other call enters the ledger and their rank may make calls. */
export interface Going {
  /** Stands for it in objects that outlive it. */
  readonly key: object;
  /** True where a call with such a deadline can be appended now. */
  takes(timeoutMs: number | undefined): boolean;
  /** Takes a call that was checked before; false for one that has to be posted. */
  goOn(prepared: Prepared<unknown>, op: CommOp): boolean;
}

/** One rank's. */
export interface Track {
  readonly current: Going | undefined;
}

/** All of a ledger's. */
export interface Goings {
  /** A rank's, for as long as the ledger lives. */
  trackOf(rank: number): Track;
  /** A call that was made before, which is the rank's next one, is there to be gone on with; false where it cannot be. */
  begin(rank: number, posting: Posting, timeoutMs: number | undefined): boolean;
  /** Nothing goes on any more. */
  seal(): void;
}

/** Runs where one rank lives here, rows where there are more. */
export function goingsOf(comm: CommInfo, host: RowsHost): Goings {
  return comm.local.length === 1 ? new Runs(host) : new Rows(comm, host);
}

/** True for a session that queues calls again and asks for nothing more about each: whether to refuse it, or when in virtual time. */
export function repeatsFreely(session: Session): boolean {
  const { enqueueRepeated, compare, onPosted, bufferGuard, clock } = session;
  if (enqueueRepeated === undefined) return false;
  return (compare ?? onPosted ?? bufferGuard ?? clock) === undefined;
}

/** The posting of a call as it was made before, where time is real. */
export function repeated(
  prepared: Prepared<unknown>,
  op: CommOp,
  timeoutMs: number | undefined,
): Posting {
  const call = prepared.made as RankCall;
  const deadlinePs = deadlineFrom(0, timeoutMs);
  return { call, prepared, op, calledAtPs: 0, deadlinePs, cancellable: false };
}

// One rank in this process.

/** The ledger's side. */
interface RunsHost {
  readonly serve: ServeHost;
  readonly numbers: CallNumbers;
  /** A call has to be done in time. */
  watch(posting: Posting): void;
}

/**
 * Calls in a row of the only rank that a process has on a communicator, handed to the session one right behind the other: one
 * entry in the queue, and one `Completion`, for any number of them.
 */
class Run extends QueuedCall implements Going {
  readonly key = {};
  readonly rank: number;
  /** The deadline of every one of them: all are done at once, so the deadline of the first is that of all. */
  readonly timeoutMs: number | undefined;
  /** Number of the call that comes next. */
  next: number;
  readonly #runs: Runs;
  /** Every call asks it. */
  readonly #session: Session;
  readonly #ops: CommOp[] = [];
  /** The prepared calls. */
  readonly #prepared: Prepared<unknown>[] = [];

  constructor(runs: Runs, rank: number, first: number, timeoutMs: number | undefined) {
    super();
    this.#runs = runs;
    this.#session = runs.session;
    this.timeoutMs = timeoutMs;
    this.rank = rank;
    this.next = first;
  }

  /** A call is made from `prepared`, which has been made a call of before. */
  add(prepared: Prepared<unknown>, op: CommOp): void {
    this.#ops.push(op);
    this.#prepared.push(prepared);
  }

  get postings(): readonly Posting[] {
    return this.#ops.map((op, at) =>
      repeated(this.#prepared[at] as Prepared<unknown>, op, this.timeoutMs),
    );
  }

  submitted(): void {
    for (const op of this.#ops) submitOp(op);
  }

  complete(): void {
    for (let at = 0; at < this.#ops.length; at++) {
      const { made, resultOf } = this.#prepared[at] as Prepared<unknown>;
      completeOp(this.#ops[at] as CommOp, resultOf(made as RankCall));
    }
  }

  takes(timeoutMs: number | undefined): boolean {
    return this.acceptsMore && this.timeoutMs === timeoutMs;
  }

  goOn(prepared: Prepared<unknown>, op: CommOp): boolean {
    const { agreement: known, made } = prepared;
    if (known?.planned === undefined || made === undefined) return false;
    try {
      this.#session.appendRepeated?.(known, this.next);
    } catch (error) {
      this.#runs.lose(this, repeated(prepared, op, this.timeoutMs), error);
      return true;
    }
    this.add(prepared, op);
    // Comes last, since callbacks of the operation may make calls.
    submitOpAs(op, this.next++);
    return true;
  }
}

/** Begins runs, and appends to the last one as long as no other call enters the ledger. */
class Runs implements Goings, Track {
  readonly #host: RunsHost;
  /** The one that goes on. */
  current: Run | undefined;

  constructor(host: RunsHost) {
    this.#host = host;
  }

  get session(): Session {
    return this.#host.serve.session;
  }

  trackOf(): Track {
    return this;
  }

  begin(rank: number, posting: Posting, timeoutMs: number | undefined): boolean {
    this.seal();
    const { prepared, op } = posting;
    const { agreement: known } = prepared;
    if (known?.planned === undefined) return false;
    const { serve, numbers } = this.#host;
    this.#host.watch(posting);
    const number = numbers.collective(rank, op);
    const run = new Run(this, rank, number + 1, timeoutMs);
    run.add(prepared, op);
    serveAgain(serve, run, known, number);
    if (run.queue !== undefined) this.current = run;
    return true;
  }

  /** A call of a run could not be made: it fails, and its number is used up. */
  lose(run: Run, posting: Posting, error: unknown): void {
    assignOp(posting.op, run.next++);
    this.seal();
    failServed(this.#host.serve, [posting], error);
  }

  seal(): void {
    const run = this.current;
    if (run === undefined) return;
    this.current = undefined;
    run.acceptsMore = false;
    this.#host.numbers.advance(run.rank, run.next);
  }
}

// Several ranks in this process.
//
// Their programs run one after another, so that the calls of the last rank complete one row after another: a row is the calls
// of all ranks with one number. Each driver call evicts our cache lines, so the hot path touches as few objects as possible: a
// call is compared when it comes, liveness of buffers is checked only after disposals, and operations are marked as submitted
// at the end of the turn. Calls without a complete row by then, or when any other call enters the ledger, are posted.

/** The calls that a rank's next call can be appended to. */
interface RankTrack {
  current: Lane | undefined;
}

/** The lanes of the ranks of one communicator that live in this process. */
class Rows implements Goings {
  readonly #host: RowsHost;
  readonly #local: readonly number[];
  /** By rank. */
  readonly #tracks: readonly RankTrack[];
  /** `undefined` before its first call. */
  #turn: TurnOfRows | undefined;

  constructor({ ranks, local }: CommInfo, host: RowsHost) {
    this.#host = host;
    this.#local = local;
    this.#tracks = ranks.map(() => ({ current: undefined }));
  }

  trackOf(rank: number): Track {
    return this.#track(rank);
  }

  #track(rank: number): RankTrack {
    return this.#tracks[rank] as RankTrack;
  }

  begin(rank: number, { prepared, op }: Posting, timeoutMs: number | undefined): boolean {
    // No row can begin with it: a turn need not be opened.
    if (rank === this.#local[0] && prepared.agreement?.planned === undefined) return false;
    this.#turn ??= this.#open(rank, timeoutMs);
    const lane = this.#turn?.lanes[this.#local.indexOf(rank)];
    if (lane?.takes(timeoutMs) !== true) return false;
    this.#track(rank).current = lane;
    return lane.goOn(prepared, op);
  }

  /** Every rank has a lane from here on; `undefined` where their next calls are not one row. */
  #open(rank: number, timeoutMs: number | undefined): TurnOfRows | undefined {
    const { numbers } = this.#host;
    const first = numbers.next(rank);
    if (this.#local.some((each) => numbers.next(each) !== first)) return undefined;
    queueMicrotask(() => this.seal());
    return new TurnOfRows(this.#host, this.#local, first, timeoutMs, () => this.seal());
  }

  seal(): void {
    const turn = this.#turn;
    if (turn === undefined) return;
    this.#turn = undefined;
    for (const lane of turn.lanes) {
      lane.isOver = true;
      this.#track(lane.rank).current = undefined;
      this.#host.numbers.advance(lane.rank, turn.first + lane.ops.length);
    }
    turn.end();
  }
}

/** The ledger's side. */
interface RowsHost extends RunsHost {
  /** Takes a rank's call, which has its number, as one that was posted. */
  place(rank: number, posting: Posting, number: number): void;
}

/** One rank's calls of a turn. */
class Lane implements Going {
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
class TurnOfRows implements RowTable {
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

/** The calls of a turn as they came: rows across the ranks that live in this process. */
interface RowTable {
  /** Each rank's operations, by row. */
  readonly lanes: readonly { readonly ops: readonly CommOp[] }[];
  /** The agreement of the calls of each row. */
  readonly agreements: readonly Agreement[];
}

/** Those that were handed to the session one right behind the other: a further row is one number more. */
class HandedRows extends QueuedCall {
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
