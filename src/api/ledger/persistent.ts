/**
 * Repeated calls: a rank makes a call again with the same arguments while earlier calls are still open.
 *
 * Such calls of one turn of the event loop form a batch. A batch has one entry in the submission queue, one deadline and one
 * `Completion`. Each call is appended to it without a comparison or a queue entry.
 */
import {
  asJobSession,
  type CommInfo,
  type RankCall,
  type RepeatedCall,
  type Session,
} from "../backend.ts";
import { type Prepared, rankCall } from "../member/prepared.ts";
import { assignOp, completeOp, type Operation, submitOp, submitOpAs } from "../op.ts";
import { submitRepeated } from "./dispatch.ts";
import type { MatchedCall } from "./matched-call.ts";
import { deadlineFrom, type Posting } from "./posting.ts";
import type { CallNumbers } from "./queues.ts";
import { type DispatchHost, failDispatched } from "./settle.ts";
import { Submission } from "./submission.ts";

/** Calls under way, as long as no other call enters the ledger and their rank may make calls. */
export interface OpenBatch {
  /** Identifies the batch in objects that outlive it. */
  readonly key: object;
  /** True where a call with such a deadline can be appended now. */
  accepts(timeoutMs: number | undefined): boolean;
  /** Takes a call that was checked before; false for one that has to be posted. */
  append(prepared: Prepared<unknown>, op: Operation): boolean;
}

/** The batch to which a rank's calls can be appended. */
export interface CurrentBatch {
  readonly current: OpenBatch | undefined;
}

/** The batches of a ledger. */
export interface CallBatches {
  /** The current batch of a rank, for as long as the ledger lives. */
  ofRank(rank: number): CurrentBatch;
  /** Begins a batch with a repeated call, the rank's next one; false where that cannot begin one. */
  begin(rank: number, posting: Posting, timeoutMs: number | undefined): boolean;
  /** Closes all batches: no call can be appended. */
  seal(): void;
}

/** Batches for one rank in this process, or for several. */
export function callBatches(comm: CommInfo, host: MultiRankHost): CallBatches {
  return comm.local.length === 1 ? new SingleRankBatches(host) : new MultiRankBatches(comm, host);
}

/** True for a session that queues repeated calls, and neither compares, observes nor times each of them. */
export function supportsRepeats(session: Session): boolean {
  const { observer } = session;
  return observer === undefined && asJobSession(session)?.compare === undefined;
}

/** The posting of a call as it was made before; where time is virtual, now. */
export function repeatedPosting(
  prepared: Prepared<unknown>,
  op: Operation,
  timeoutMs: number | undefined,
  nowPs?: number,
  calledAtPs = nowPs ?? 0,
): Posting {
  const before = prepared.rankCall as RankCall;
  // Where time is real, open calls may share one object: no time is noted in it.
  const call =
    nowPs === undefined ? before : rankCall(before.collective, before.rank, prepared.call, nowPs);
  const deadlinePs = timeoutMs === undefined ? undefined : deadlineFrom(calledAtPs, timeoutMs);
  return { call, prepared, op, calledAtPs, deadlinePs, cancellable: false };
}

// One rank in this process.

/** The ledger's side. */
interface BatchHost {
  readonly dispatch: DispatchHost;
  readonly numbers: CallNumbers;
  /** A call has to be done in time. */
  watchDeadline(posting: Posting): void;
}

/**
 * Consecutive calls of a process with one rank on a communicator, appended to one submission. They share one queue entry and
 * one `Completion`.
 */
class SingleRankBatch extends Submission implements OpenBatch {
  readonly key = {};
  readonly rank: number;
  /** The deadline of every one of them: all are done at once, so the deadline of the first is that of all. */
  readonly timeoutMs: number | undefined;
  /** Number of the call that comes next. */
  next: number;
  readonly #batches: SingleRankBatches;
  readonly #ops: Operation[] = [];
  /** The prepared calls. */
  readonly #prepared: Prepared<unknown>[] = [];

  constructor(
    batches: SingleRankBatches,
    rank: number,
    first: number,
    timeoutMs: number | undefined,
  ) {
    super();
    this.#batches = batches;
    this.timeoutMs = timeoutMs;
    this.rank = rank;
    this.next = first;
  }

  /** A call is made from `prepared`, which has been made a call of before. */
  add(prepared: Prepared<unknown>, op: Operation): void {
    this.#ops.push(op);
    this.#prepared.push(prepared);
  }

  get postings(): readonly Posting[] {
    return this.#ops.map((op, at) =>
      repeatedPosting(this.#prepared[at] as Prepared<unknown>, op, this.timeoutMs),
    );
  }

  submitted(): void {
    for (const op of this.#ops) submitOp(op);
  }

  complete(): void {
    for (let at = 0; at < this.#ops.length; at++) {
      const { rankCall, toResult } = this.#prepared[at] as Prepared<unknown>;
      completeOp(this.#ops[at] as Operation, toResult(rankCall as RankCall));
    }
  }

  accepts(timeoutMs: number | undefined): boolean {
    return this.acceptsMore && this.timeoutMs === timeoutMs;
  }

  append(prepared: Prepared<unknown>, op: Operation): boolean {
    const { matched, rankCall } = prepared;
    if (matched?.repeat === undefined || rankCall === undefined) return false;
    try {
      matched.repeat.submit(this.next, this);
    } catch (error) {
      this.#batches.failAppended(this, repeatedPosting(prepared, op, this.timeoutMs), error);
      return true;
    }
    this.add(prepared, op);
    // Comes last, since callbacks of the operation may make calls.
    submitOpAs(op, this.next++);
    return true;
  }
}

/** Begins batches, and appends to the last one as long as no other call enters the ledger. */
class SingleRankBatches implements CallBatches, CurrentBatch {
  readonly #host: BatchHost;
  /** The batch that accepts calls. */
  current: SingleRankBatch | undefined;

  constructor(host: BatchHost) {
    this.#host = host;
  }

  ofRank(): CurrentBatch {
    return this;
  }

  begin(rank: number, posting: Posting, timeoutMs: number | undefined): boolean {
    this.seal();
    const { prepared, op } = posting;
    const { matched } = prepared;
    if (matched?.repeat === undefined) return false;
    const { dispatch, numbers } = this.#host;
    this.#host.watchDeadline(posting);
    const number = numbers.assignCollective(rank, op);
    const batch = new SingleRankBatch(this, rank, number + 1, timeoutMs);
    batch.add(prepared, op);
    submitRepeated(dispatch, batch, matched.repeat, number);
    if (batch.queue !== undefined) this.current = batch;
    return true;
  }

  /** A call of a batch could not be made: it fails, and its number is used up. */
  failAppended(batch: SingleRankBatch, posting: Posting, error: unknown): void {
    assignOp(posting.op, batch.next++);
    this.seal();
    failDispatched(this.#host.dispatch, [posting], error);
  }

  seal(): void {
    const batch = this.current;
    if (batch === undefined) return;
    this.current = undefined;
    batch.acceptsMore = false;
    this.#host.numbers.setNextCollective(batch.rank, batch.next);
  }
}

// Several ranks in this process.
//
// The ranks' programs run one after another, so that the calls of the last rank complete row by row. A row is the calls of all
// ranks with one number. Each driver call evicts our cache lines, so the hot path touches as few objects as possible. A call is
// compared when it arrives, and buffers are checked only after disposals. Operations are marked as submitted at the end of the
// turn. Calls without a complete row by then, or when any other call enters the ledger, are posted.

/** The calls that a rank's next call can be appended to. */
interface CurrentRankCalls {
  current: RankCalls | undefined;
}

/** The batches of a communicator with several ranks in this process. */
class MultiRankBatches implements CallBatches {
  readonly #host: MultiRankHost;
  readonly #local: readonly number[];
  /** By rank. */
  readonly #current: readonly CurrentRankCalls[];
  /** `undefined` before its first call. */
  #batch: MultiRankBatch | undefined;

  constructor({ ranks, local }: CommInfo, host: MultiRankHost) {
    this.#host = host;
    this.#local = local;
    this.#current = ranks.map(() => ({ current: undefined }));
  }

  ofRank(rank: number): CurrentBatch {
    return this.#currentOf(rank);
  }

  #currentOf(rank: number): CurrentRankCalls {
    return this.#current[rank] as CurrentRankCalls;
  }

  begin(rank: number, { prepared, op }: Posting, timeoutMs: number | undefined): boolean {
    // No row can begin with it: a turn need not be opened.
    if (rank === this.#local[0] && prepared.matched?.repeat === undefined) return false;
    this.#batch ??= this.#open(rank, timeoutMs);
    const column = this.#batch?.columns[this.#local.indexOf(rank)];
    if (column?.accepts(timeoutMs) !== true) return false;
    this.#currentOf(rank).current = column;
    return column.append(prepared, op);
  }

  /** Opens a batch with a column for each rank; `undefined` where their next calls do not have one number. */
  #open(rank: number, timeoutMs: number | undefined): MultiRankBatch | undefined {
    const { numbers } = this.#host;
    const first = numbers.nextCollective(rank);
    if (this.#local.some((each) => numbers.nextCollective(each) !== first)) return undefined;
    queueMicrotask(() => this.seal());
    return new MultiRankBatch(this.#host, this.#local, first, timeoutMs, () => this.seal());
  }

  seal(): void {
    const batch = this.#batch;
    if (batch === undefined) return;
    this.#batch = undefined;
    for (const column of batch.columns) {
      column.isOver = true;
      this.#currentOf(column.rank).current = undefined;
      this.#host.numbers.setNextCollective(column.rank, batch.first + column.ops.length);
    }
    batch.end();
  }
}

/** The ledger's side. */
interface MultiRankHost extends BatchHost {
  /** Takes a rank's call, which has its number, as one that was posted. */
  enqueue(rank: number, posting: Posting, number: number): void;
}

/** One rank's calls of a turn. */
class RankCalls implements OpenBatch {
  readonly key = {};
  readonly rank: number;
  /** Its index among the columns. */
  readonly at: number;
  readonly ops: Operation[] = [];
  /** By row: prepared calls that came before the first column's call, which compares them when it comes. */
  readonly early = new Map<number, Prepared<unknown>>();
  /** The turn is over, or another call entered the ledger. */
  isOver = false;
  readonly #batch: MultiRankBatch;
  readonly #first: number;
  readonly #timeoutMs: number | undefined;

  constructor(batch: MultiRankBatch, at: number, rank: number) {
    this.#batch = batch;
    this.at = at;
    this.rank = rank;
    this.#first = batch.first;
    this.#timeoutMs = batch.timeoutMs;
  }

  accepts(timeoutMs: number | undefined): boolean {
    return !this.isOver && this.#timeoutMs === timeoutMs;
  }

  append(prepared: Prepared<unknown>, op: Operation): boolean {
    const row = this.ops.length;
    if (prepared.rankCall === undefined || !this.#batch.admits(this, row, prepared)) return false;
    assignOp(op, this.#first + row);
    this.ops.push(op);
    this.#batch.arrived(row);
    return true;
  }
}

/** The rows of one turn. */
class MultiRankBatch implements RowTable {
  readonly columns: readonly RankCalls[];
  readonly matched: MatchedCall[] = [];
  /** Number of the first row. */
  readonly first: number;
  readonly timeoutMs: number | undefined;
  readonly #host: MultiRankHost;
  /** Ends the turn. */
  readonly #seal: () => void;
  /** Numbers of ranks that have come to each row. */
  readonly #arrived: number[] = [];
  /** Some call has come before the first column's. */
  #hasEarly = false;
  /** Number of rows that were submitted to the session. */
  #submittedRows = 0;
  /** In the order in which the session took them; further rows go behind the last of them. */
  readonly #submissions: SubmittedRows[] = [];
  #last: SubmittedRows | undefined;

  constructor(
    host: MultiRankHost,
    local: readonly number[],
    first: number,
    timeoutMs: number | undefined,
    seal: () => void,
  ) {
    this.#host = host;
    this.first = first;
    this.timeoutMs = timeoutMs;
    this.#seal = seal;
    this.columns = local.map((rank, at) => new RankCalls(this, at, rank));
  }

  /** Lets a call into a row, unless it is none that was made before with the others there, as far as those have come. */
  admits(column: RankCalls, row: number, prepared: Prepared<unknown>): boolean {
    const matched = this.matched[row];
    if (matched !== undefined) return matched.prepared[column.at] === prepared;
    if (column.at === 0) return this.#beginsRow(row, prepared);
    column.early.set(row, prepared);
    this.#hasEarly = true;
    return true;
  }

  /** The matched call is cached with the first column's call. */
  #beginsRow(row: number, { matched }: Prepared<unknown>): boolean {
    if (matched?.repeat === undefined) return false;
    if (this.#hasEarly) {
      for (const { at, early } of this.columns) {
        if (early.has(row) && early.get(row) !== matched.prepared[at]) return false;
      }
    }
    this.matched.push(matched);
    return true;
  }

  /** A call has come to a row: the last one submits the row. */
  arrived(row: number): void {
    const came = (this.#arrived[row] ?? 0) + 1;
    this.#arrived[row] = came;
    if (came === this.columns.length) this.#submitRow(this.matched[row] as MatchedCall, row);
  }

  #submitRow(matched: MatchedCall, row: number): void {
    if (!matched.buffersLive()) {
      this.#seal();
      return;
    }
    this.#submittedRows = row + 1;
    if (this.#last?.acceptsMore === true) this.#appendRow(this.#last, matched, row);
    else this.#submitFirstRow(matched, row);
  }

  #appendRow(rows: SubmittedRows, matched: MatchedCall, row: number): void {
    const { dispatch } = this.#host;
    try {
      matched.repeat?.submit(this.first + row, rows);
    } catch (error) {
      this.#seal();
      failDispatched(dispatch, this.#postings(row), error);
      return;
    }
    rows.to = row + 1;
  }

  #submitFirstRow(matched: MatchedCall, row: number): void {
    const { dispatch, watchDeadline } = this.#host;
    const rows = new SubmittedRows(this, row, this.timeoutMs);
    for (const posting of rows.postings) watchDeadline(posting);
    submitRepeated(dispatch, rows, matched.repeat as RepeatedCall, this.first + row);
    if (rows.queue === undefined) return;
    this.#submissions.push(rows);
    this.#last = rows;
  }

  /**
   * Posts the calls that are no row, and marks the operations of the others as submitted: that comes last, since
   * their callbacks may make calls.
   */
  end(): void {
    for (let row = this.#submittedRows; row < this.#arrived.length; row++) {
      for (const posting of this.#postings(row)) {
        this.#host.enqueue(posting.op.rank, posting, this.first + row);
      }
    }
    for (const rows of this.#submissions) rows.markSubmitted();
  }

  /** Those of the ranks that have come to a row. */
  #postings(row: number): readonly Posting[] {
    return this.columns.flatMap(({ ops, early, at }) => {
      const op = ops[row];
      const prepared = this.matched[row]?.prepared[at] ?? early.get(row);
      if (op === undefined || prepared === undefined) return [];
      return [repeatedPosting(prepared, op, this.timeoutMs)];
    });
  }
}

/** The calls of a turn as they came: rows across the ranks that live in this process. */
interface RowTable {
  /** Each rank's operations, by row. */
  readonly columns: readonly { readonly ops: readonly Operation[] }[];
  /** The matched call of each row. */
  readonly matched: readonly MatchedCall[];
}

/** Rows of one submission: an appended row is one more number. */
class SubmittedRows extends Submission {
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
    const { columns, matched } = this.#table;
    const postings: Posting[] = [];
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = matched[row] as MatchedCall;
      for (const [at, { ops }] of columns.entries()) {
        const made = prepared[at] as Prepared<unknown>;
        postings.push(repeatedPosting(made, ops[row] as Operation, this.#timeoutMs));
      }
    }
    return postings;
  }

  submitted(): void {
    // `markSubmitted` does it for all of them together.
  }

  /** Submits the operations of these rows. */
  markSubmitted(): void {
    for (let row = this.#from; row < this.to; row++) {
      for (const { ops } of this.#table.columns) submitOp(ops[row] as Operation);
    }
  }

  complete(): void {
    const { columns, matched } = this.#table;
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = matched[row] as MatchedCall;
      for (let at = 0; at < columns.length; at++) {
        const { rankCall, toResult } = prepared[at] as Prepared<unknown>;
        completeOp(columns[at]?.ops[row] as Operation, toResult(rankCall as RankCall));
      }
    }
  }
}
