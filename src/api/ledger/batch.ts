/**
 * Batches of repeated calls: a rank makes a call again with the same arguments while earlier calls are still open.
 *
 * The calls of all ranks here with one number form a row. Rows that follow each other form a batch: one submission, with one
 * entry in the queue, one deadline and one completion. Each call is appended without a comparison or a queue entry.
 *
 * The programs of several ranks run one after another, so that the calls of the last rank complete row by row. The rows of one
 * turn of the event loop are collected. Calls without a complete row at its end, or when any other call enters the ledger, are
 * queued as others are.
 */
import type { RankCall, RepeatedCall } from "../backend.ts";
import { assignOp, completeOp, type Operation, submitOp, submitOpAs } from "../op.ts";
import { type CommState, Submission } from "./comm-state.ts";
import { failDispatched } from "./dispatch.ts";
import type { SubmittedGroup } from "./order.ts";
import {
  type MatchedCall,
  type Posting,
  type Prepared,
  type PreparedTransfer,
  repeatedPosting,
  repeatedTransfers,
} from "./posting.ts";

/** A call of messages behind the first of those that a rank makes together. */
interface MadeCall {
  readonly prepared: Prepared<unknown>;
  readonly op: Operation;
}

const none: readonly MadeCall[] = [];

/** Rows of calls that the session completes together. */
class CallBatch extends Submission {
  readonly #batches: CallBatches;
  /** The deadline of every call: all are done at once, so that the deadline of the first row is that of all. */
  readonly timeoutMs: number | undefined;
  /** By row. */
  readonly #matched: MatchedCall[];
  /** The operations of each rank here, by row. */
  readonly #columns: readonly Operation[][];
  /** The first column: a call of the only rank here is added without a look at the others. */
  readonly #ops: Operation[];
  readonly #from: number;
  /** The row behind the last one. */
  to: number;
  /** The place of each row among the submissions of the world, where that has several communicators. */
  serials: number[] | undefined;
  /** The numbers of the sends and receives of rows of messages. */
  #numbers: Map<number, readonly number[]> | undefined;

  /** A batch of the row `from` of tables to which further rows may be added. */
  constructor(
    batches: CallBatches,
    timeoutMs: number | undefined,
    matched: MatchedCall[],
    columns: readonly Operation[][],
    from: number,
  ) {
    super();
    this.#batches = batches;
    this.timeoutMs = timeoutMs;
    this.#matched = matched;
    this.#columns = columns;
    this.#ops = columns[0] as Operation[];
    this.#from = from;
    this.to = from + 1;
  }

  /** Adds a row of one call. */
  addCall(matched: MatchedCall, op: Operation): void {
    this.#matched.push(matched);
    this.#ops.push(op);
    this.to++;
  }

  /** Notes the numbers of the sends and receives of the last row. */
  noteNumbers(numbers: readonly number[]): void {
    this.#numbers ??= new Map();
    this.#numbers.set(this.to - 1, numbers);
  }

  /** Places the rows that were added last. */
  placeRows(serial: number): void {
    this.serials ??= [];
    while (this.serials.length < this.to) this.serials.push(serial);
  }

  /** Removes the rows from `row` on, and gives their calls. */
  cut(row: number): readonly Posting[] {
    const rows = Array.from({ length: this.to - row }, (_, behind) =>
      this.#postingsOf(row + behind),
    );
    this.to = row;
    return rows.flat();
  }

  get postings(): readonly Posting[] {
    return this.groups.flatMap(({ postings }) => postings);
  }

  override get groups(): readonly SubmittedGroup[] {
    const groups: { serial: number; postings: Posting[] }[] = [];
    for (let row = this.#from; row < this.to; row++) {
      const postings = this.#postingsOf(row);
      // Messages behind the first of a group belong to it.
      if (this.#matched[row]?.messages?.length === 0) groups.at(-1)?.postings.push(...postings);
      else groups.push({ serial: this.serials?.[row] ?? this.serial, postings });
    }
    return groups;
  }

  #postingsOf(row: number): Posting[] {
    const { prepared } = this.#matched[row] as MatchedCall;
    const numbers = this.#numbers?.get(row);
    return this.#columns.flatMap((ops, at): Posting[] => {
      const made = prepared[at] as Prepared<unknown>;
      const op = ops[row] as Operation;
      if (numbers === undefined) return [repeatedPosting(made, op, this.timeoutMs)];
      return repeatedTransfers(made as PreparedTransfer<unknown>, op, this.timeoutMs, numbers);
    });
  }

  /** Comes behind all others: callbacks of the operations may make calls. */
  markSubmitted(from = this.#from): void {
    for (let row = from; row < this.to; row++) {
      for (const ops of this.#columns) submitOp(ops[row] as Operation);
    }
  }

  complete(): void {
    this.#batches.seal();
    const columns = this.#columns;
    for (let row = this.#from; row < this.to; row++) {
      const { prepared } = this.#matched[row] as MatchedCall;
      for (let at = 0; at < columns.length; at++) {
        const { rankCall, result, toResult } = prepared[at] as Prepared<unknown>;
        const value = toResult === undefined ? result : toResult(rankCall as RankCall);
        completeOp((columns[at] as Operation[])[row] as Operation, value);
      }
    }
  }
}

/** One rank's repeated calls. */
export class RankCalls {
  /** This object while calls can be appended. It is set by a checked call of the rank: appended calls are not checked again. */
  current: RankCalls | undefined;
  /** The deadline of the calls that can be appended. */
  timeoutMs: number | undefined;
  /** The rows of this turn, where several ranks are here. */
  rows: Rows | undefined;
  /** The submission to which a call is appended, where no other rank is here. */
  batch: CallBatch | undefined;
  /** Number of the rank's next collective call. */
  next = 0;
  /** Identifies the open batch in objects that outlive it. */
  key: object = this;
  /** Read for every call without a look at the state of the communicator: few objects are in the caches then. */
  readonly #streams: CommState["world"]["streams"];
  /** The operations of this turn, by row. */
  ops: Operation[] = [];
  /** By row: prepared calls that came before the first rank's call, which is compared with them when it comes. */
  readonly early = new Map<number, Prepared<unknown>>();
  readonly rank: number;
  /** Its index among the ranks here. */
  readonly at: number;
  readonly #batches: CallBatches;

  constructor(batches: CallBatches, { world }: CommState, rank: number, at: number) {
    this.#batches = batches;
    this.#streams = world.streams;
    this.rank = rank;
    this.at = at;
  }

  /** Numbers the rank's next collective call. */
  assign(op: Operation): number {
    const number = this.next++;
    assignOp(op, number);
    return number;
  }

  /** True where a call with such a deadline can be appended now. */
  accepts(timeoutMs: number | undefined): boolean {
    if (this.timeoutMs !== timeoutMs) return false;
    if (this.rows !== undefined) return true;
    if (this.batch?.acceptsMore !== true) return false;
    return this.#streams.size === 0 || !this.#batches.isBlocked;
  }

  /** Appends a call that was checked before, of messages with those made together with it; false for one that has to be posted. */
  append(prepared: Prepared<unknown>, op: Operation, behind?: readonly MadeCall[]): boolean {
    const { matched, rankCall } = prepared;
    if (rankCall === undefined) return false;
    if (this.rows !== undefined) return this.rows.append(this, prepared, op);
    const repeat = matched?.repeat;
    if (matched === undefined || repeat === undefined) return false;
    const batch = this.batch as CallBatch;
    if (matched.messages !== undefined) return this.#appendMessages(batch, matched, op, behind);
    try {
      repeat.submit(this.next, batch);
    } catch (error) {
      // The call could not be made: it fails, and its number is used up.
      this.assign(op);
      this.#batches.fail([repeatedPosting(prepared, op, this.timeoutMs)], error);
      return true;
    }
    batch.addCall(matched, op);
    batch.serials?.push(this.#batches.nextSerial);
    // Comes last, since callbacks of the operation may make calls.
    submitOpAs(op, this.next++);
    return true;
  }

  #appendMessages(batch: CallBatch, matched: MatchedCall, op: Operation, behind = none): boolean {
    if (!matched.isMadeWith(behind)) return false;
    const row = batch.to;
    batch.addCall(matched, op);
    this.#batches.completeMessages(batch, matched, op, behind);
    try {
      matched.repeat?.submit(op.call, batch);
    } catch (error) {
      this.#batches.fail(batch.cut(row), error);
      return true;
    }
    if (batch.serials !== undefined) batch.placeRows(this.#batches.nextSerial);
    batch.markSubmitted(row);
    return true;
  }
}

/**
 * The rows of several ranks in one turn. Each driver call evicts cache lines of the processor, so that appending a call touches
 * few objects: operations are marked as submitted at the end of the turn, and buffers are checked only after disposals.
 */
class Rows {
  readonly #batches: CallBatches;
  readonly #ranks: readonly RankCalls[];
  readonly #timeoutMs: number | undefined;
  /** Number of the first row. */
  readonly #first: number;
  readonly #matched: MatchedCall[] = [];
  /** Number of ranks that have come to each row. */
  readonly #arrived: number[] = [];
  /** Some call has come before the first rank's. */
  #hasEarly = false;
  /** Number of complete rows. */
  #complete = 0;
  /** In the order in which the session took them; further rows are appended to the last. */
  readonly #submitted: CallBatch[] = [];
  #last: CallBatch | undefined;

  constructor(
    batches: CallBatches,
    ranks: readonly RankCalls[],
    first: number,
    timeoutMs: number | undefined,
  ) {
    this.#batches = batches;
    this.#ranks = ranks;
    this.#first = first;
    this.#timeoutMs = timeoutMs;
  }

  append(own: RankCalls, prepared: Prepared<unknown>, op: Operation): boolean {
    const row = own.ops.length;
    if (!this.#admits(own, row, prepared)) return false;
    own.assign(op);
    own.ops.push(op);
    const came = (this.#arrived[row] ?? 0) + 1;
    this.#arrived[row] = came;
    if (came === this.#ranks.length) this.#submit(this.#matched[row] as MatchedCall, row);
    return true;
  }

  /** True for a call that was made before together with the others of the row, as far as those have come. */
  #admits(own: RankCalls, row: number, prepared: Prepared<unknown>): boolean {
    const known = this.#matched[row];
    if (known !== undefined) return known.prepared[own.at] === prepared;
    if (own.at === 0) return this.#beginsRow(row, prepared);
    own.early.set(row, prepared);
    this.#hasEarly = true;
    return true;
  }

  /** The matched call is cached with the first rank's call. */
  #beginsRow(row: number, { matched }: Prepared<unknown>): boolean {
    if (matched?.repeat === undefined) return false;
    if (this.#hasEarly) {
      for (const { at, early } of this.#ranks) {
        if (early.has(row) && early.get(row) !== matched.prepared[at]) return false;
      }
    }
    this.#matched.push(matched);
    return true;
  }

  #submit(matched: MatchedCall, row: number): void {
    if (!matched.buffersLive()) {
      this.#batches.seal();
      return;
    }
    this.#complete = row + 1;
    const number = this.#first + row;
    const last = this.#last;
    if (last?.acceptsMore !== true) {
      const columns = this.#ranks.map(({ ops }) => ops);
      const batch = new CallBatch(this.#batches, this.#timeoutMs, this.#matched, columns, row);
      if (!this.#batches.submit(batch, matched, number)) return;
      this.#submitted.push(batch);
      this.#last = batch;
      return;
    }
    try {
      matched.repeat?.submit(number, last);
    } catch (error) {
      this.#batches.fail(this.#postings(row), error);
      return;
    }
    last.to = row + 1;
  }

  /** The calls without a complete row, with their numbers. */
  incomplete(): { readonly posting: Posting; readonly number: number }[] {
    const left = this.#arrived.slice(this.#complete);
    return left.flatMap((_, at) => {
      const row = this.#complete + at;
      return this.#postings(row).map((posting) => ({ posting, number: this.#first + row }));
    });
  }

  /** Marks the others as submitted. */
  markSubmitted(): void {
    for (const batch of this.#submitted) batch.markSubmitted();
  }

  /** The calls of the ranks that have come to a row. */
  #postings(row: number): readonly Posting[] {
    return this.#ranks.flatMap(({ ops, early, at }) => {
      const op = ops[row];
      const prepared = this.#matched[row]?.prepared[at] ?? early.get(row);
      if (op === undefined || prepared === undefined) return [];
      return [repeatedPosting(prepared, op, this.#timeoutMs)];
    });
  }
}

/** The batches of one communicator. */
export class CallBatches {
  readonly #state: CommState;
  /** Those of this process. */
  readonly #ranks: readonly RankCalls[];
  readonly #byRank: readonly (RankCalls | undefined)[];
  readonly #isSingle: boolean;
  #isOpen = false;

  constructor(state: CommState) {
    this.#state = state;
    const { local, ranks } = state.comm;
    this.#ranks = local.map((rank, at) => new RankCalls(this, state, rank, at));
    const byRank: (RankCalls | undefined)[] = ranks.map(() => undefined);
    for (const own of this.#ranks) byRank[own.rank] = own;
    this.#byRank = byRank;
    this.#isSingle = local.length === 1;
  }

  /** The place of a call that is submitted now among the submissions of the world. */
  get nextSerial(): number {
    return ++this.#state.world.submissions;
  }

  /** The repeated calls of a rank of this process. */
  ofRank(rank: number): RankCalls {
    return this.#byRank[rank] as RankCalls;
  }

  /** Some call keeps the later ones waiting. */
  get isBlocked(): boolean {
    const { queues, world } = this.#state;
    return world.streams.size > 0 && queues.areStreamsBusy;
  }

  /** Begins a batch with a repeated call, the rank's next one, as `append` adds it; false where that cannot begin one. */
  begin(
    prepared: Prepared<unknown>,
    op: Operation,
    timeoutMs: number | undefined,
    behind = none,
  ): boolean {
    if (!this.#state.isOpen || this.#state.isExecuting || this.isBlocked) return false;
    const own = this.ofRank(op.rank);
    const { matched } = prepared;
    if (this.#isSingle) {
      if (matched?.repeat === undefined) return false;
      const isMessage = matched.messages !== undefined;
      if (isMessage && !matched.isMadeWith(behind)) return false;
      this.seal();
      this.#open(timeoutMs);
      own.current = own;
      const batch = new CallBatch(this, timeoutMs, [matched], [[op]], 0);
      if (isMessage) this.completeMessages(batch, matched, op, behind);
      else own.assign(op);
      if (!this.submit(batch, matched, op.call)) return true;
      if (this.#state.world.nextId > 1) batch.placeRows(batch.serial);
      own.batch = batch;
      batch.markSubmitted();
      return true;
    }
    // No row can begin with it.
    if (own.at === 0 && matched?.repeat === undefined) return false;
    if (!this.#isOpen && !this.#openRows(own.next, timeoutMs)) return false;
    if (!own.accepts(timeoutMs)) return false;
    own.current = own;
    return own.append(prepared, op);
  }

  /** Numbers the call of messages in the last row of a batch, and adds those behind it. */
  completeMessages(
    batch: CallBatch,
    { messages = [] }: MatchedCall,
    first: Operation,
    behind: readonly MadeCall[],
  ): void {
    const { messageNumbers } = this.#state;
    for (const [at, matched] of messages.entries()) {
      const op = behind[at - 1]?.op ?? first;
      if (at > 0) batch.addCall(matched, op);
      const prepared = matched.prepared[0] as PreparedTransfer<unknown>;
      batch.noteNumbers(messageNumbers.assignAgain(op.rank, op, prepared));
    }
  }

  #open(timeoutMs: number | undefined): void {
    this.#isOpen = true;
    for (const own of this.#ranks) {
      own.timeoutMs = timeoutMs;
      own.key = {};
    }
  }

  /** Opens the rows of a turn; false where the next calls of the ranks do not have one number. */
  #openRows(first: number, timeoutMs: number | undefined): boolean {
    if (this.#ranks.some(({ next }) => next !== first)) return false;
    const rows = new Rows(this, this.#ranks, first, timeoutMs);
    const { world } = this.#state;
    // Calls without a complete row on another communicator come first.
    world.collecting?.seal();
    world.collecting = this.#state;
    this.#open(timeoutMs);
    for (const own of this.#ranks) own.rows = rows;
    queueMicrotask(() => {
      if (this.#ranks[0]?.rows === rows) this.seal();
    });
    return true;
  }

  /** Submits a batch of one row, to which others are appended; false where the session has not queued it. */
  submit(batch: CallBatch, { repeat }: MatchedCall, number: number): boolean {
    const { deadlines, submitted } = this.#state;
    if (batch.timeoutMs !== undefined) {
      for (const posting of batch.postings) {
        // The operation of a sendRecv has two ends.
        if (posting.op.deadline === undefined) deadlines?.watch(posting);
      }
    }
    try {
      submitted.add(batch, (completion) => (repeat as RepeatedCall).submit(number, completion));
    } catch (error) {
      failDispatched(this.#state, batch.postings, error);
    }
    return batch.queue !== undefined;
  }

  /** Fails calls that could not be submitted. */
  fail(postings: readonly Posting[], error: unknown): void {
    this.seal();
    failDispatched(this.#state, postings, error);
  }

  /** Closes the batch: no call can be appended. Calls without a complete row are queued. */
  seal(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const rows = this.#ranks[0]?.rows;
    const left = rows?.incomplete() ?? [];
    if (rows !== undefined) this.#state.world.collecting = undefined;
    for (const own of this.#ranks) {
      own.current = undefined;
      own.rows = undefined;
      if (own.batch !== undefined) own.batch.acceptsMore = false;
      own.batch = undefined;
      if (rows === undefined) continue;
      own.ops = [];
      own.early.clear();
    }
    for (const { posting, number } of left) {
      this.#state.enqueue(posting.op.rank, posting, number);
    }
    // Comes last, since callbacks of the operations may make calls.
    rows?.markSubmitted();
  }

  /** Back to call 0 on every rank. */
  reset(): void {
    for (const own of this.#ranks) own.next = 0;
  }
}
