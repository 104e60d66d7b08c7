/**
 * Batches of repeated calls: a rank makes a call again with the same arguments while earlier calls are still open.
 *
 * Rows that follow each other form a batch: one submission, with one entry in the queue, one deadline and one completion. Where
 * time is virtual, every call has times of its own: a row is dispatched alone. A driver call evicts cache lines, so that appending
 * touches few objects: operations of rows are marked as submitted at the end of the turn, buffers are checked only after disposals.
 *
 * `CallBatches` has the repeated calls of a communicator, and `RankCalls` those of one rank. With several ranks here, or virtual
 * time, calls wait in `Rows` until each rank has made its own. Complete rows go to a `CallBatch`, which the session has in its
 * queue, or one by one to `dispatchRepeated`. The calls of the only rank of a process go to a `CallBatch` at once.
 */
import type { RankCall, RepeatedCall, VirtualClock } from "../backend.ts";
import { assignOp, completeOp, type Operation, submitOp, submitOpAs } from "../op.ts";
import { type CommState, Submission } from "./comm-state.ts";
import type { SubmittedGroup } from "./deadlock/order.ts";
import { type CompleteRow, dispatchRepeated, failDispatched } from "./dispatch.ts";
import {
  type MatchedCall,
  type MatchedMessages,
  type Posting,
  type Prepared,
  type PreparedTransfer,
  repeatedPosting,
  repeatedTransfers,
} from "./posting.ts";

/** A call of messages behind the first of those that a rank makes together. */
type MadeCall = Pick<Posting, "prepared" | "op">;

const none: readonly MadeCall[] = [];

const passed = Promise.resolve();

/** Microtasks for which rows in virtual time wait: ranks that await no more than this between two calls make them by then. */
const rowHops = 64;

/** Rows of calls that the session completes together. */
class CallBatch extends Submission {
  readonly #batches: CallBatches;
  /** The deadline of every call: all are done at once, so that the deadline of the first row is that of all. */
  readonly timeoutMs: number | undefined;
  /** By row of a table. */
  readonly #matched: (MatchedCall | undefined)[];
  /** By row of the table, the operations of the ranks here side by side. */
  readonly #ops: (Operation | undefined)[];
  readonly #ranks: number;
  /** The row of the table that is its first. */
  readonly #from: number;
  /** The row of the table behind its last one. */
  to: number;
  /** The place of each row among the submissions of the world, where that has several communicators. */
  serials: number[] | undefined;
  /** The numbers of the sends and receives of rows of messages. */
  #numbers: Map<number, readonly number[]> | undefined;

  /** A batch of the rows of a table from `from` on. */
  constructor(
    batches: CallBatches,
    timeoutMs: number | undefined,
    matched: (MatchedCall | undefined)[],
    ops: (Operation | undefined)[],
    from = 0,
  ) {
    super();
    this.#batches = batches;
    this.timeoutMs = timeoutMs;
    this.#matched = matched;
    this.#ops = ops;
    this.#ranks = (matched[from] as MatchedCall).prepared.length;
    this.#from = from;
    this.to = from;
  }

  /** Adds a row of the only rank here. */
  add(matched: MatchedCall, op: Operation): void {
    this.#matched[this.to] = matched;
    this.#ops[this.to++] = op;
  }

  /** Adds messages of the only rank here, with the numbers of their sends and receives. */
  addMessages(matched: MatchedCall, op: Operation, numbers: readonly number[]): void {
    this.#numbers ??= new Map();
    this.#numbers.set(this.to, numbers);
    this.add(matched, op);
  }

  /** Submits the last row, or those from `row` on; false where they could not be submitted, and have failed. */
  submit(repeat: RepeatedCall, number: number, row?: number): boolean {
    try {
      if (this.acceptsMore) repeat.submit(number, this);
      else this.#batches.queue(this, repeat, number);
    } catch (error) {
      return this.#batches.fail(this.cut(row), number, error);
    }
    if (this.serials !== undefined) this.placeRows();
    return true;
  }

  /** Places the rows that were added last. */
  placeRows(serial = this.#batches.nextSerial): void {
    this.serials ??= [];
    while (this.serials.length < this.to) this.serials.push(serial);
  }

  /** Removes the rows from `row` on, and gives their calls. */
  cut(row = this.to - 1): readonly Posting[] {
    const cut: Posting[] = [];
    for (let at = row; at < this.to; at++) cut.push(...this.#postingsOf(at));
    this.to = row;
    return cut;
  }

  get ops(): readonly Operation[] {
    return this.#ops.slice(this.#from * this.#ranks, this.to * this.#ranks) as Operation[];
  }

  get postings(): readonly Posting[] {
    return this.groups.flatMap(({ postings }) => postings);
  }

  override get groups(): readonly SubmittedGroup[] {
    const groups: { serial: number; postings: Posting[] }[] = [];
    for (let row = this.#from; row < this.to; row++) {
      const postings = this.#postingsOf(row);
      // Messages behind the first of a group belong to it.
      if (this.#matched[row]?.isBehind === true) groups.at(-1)?.postings.push(...postings);
      else groups.push({ serial: this.serials?.[row] ?? this.serial, postings });
    }
    return groups;
  }

  #postingsOf(row: number): Posting[] {
    const { prepared } = this.#matched[row] as MatchedCall;
    const numbers = this.#numbers?.get(row);
    return prepared.flatMap((made, at): Posting[] => {
      const op = this.#ops[row * this.#ranks + at] as Operation;
      if (numbers === undefined) return [repeatedPosting(made, op, this.timeoutMs)];
      return repeatedTransfers(made as PreparedTransfer<unknown>, op, this.timeoutMs, numbers);
    });
  }

  /** Comes behind all others: callbacks of the operations may make calls. */
  markSubmitted(from = this.#from): void {
    const end = this.to * this.#ranks;
    for (let at = from * this.#ranks; at < end; at++) submitOp(this.#ops[at] as Operation);
  }

  complete(): void {
    this.#batches.seal();
    const ops = this.#ops;
    for (let row = this.#from, place = row * this.#ranks; row < this.to; row++) {
      const { prepared } = this.#matched[row] as MatchedCall;
      for (let at = 0; at < prepared.length; at++, place++) {
        const { rankCall, result, toResult } = prepared[at] as Prepared<unknown>;
        const value = toResult === undefined ? result : toResult(rankCall as RankCall);
        completeOp(ops[place] as Operation, value);
      }
    }
  }
}

// Rows: the repeated calls of all ranks here with one number.
//
// The programs of several ranks run one after another, so that the calls of the last rank complete row by row. Rows wait for
// some microtasks. Calls without a complete row by then, or when any other call enters the ledger, are queued as others are.

/** The open rows of a communicator. `pass` leaves the tables to batches, `take` uses them again. */
class Rows {
  /** By row, once the first rank has come to it: what is known of a row is cached with that rank's call. */
  readonly matched: (MatchedCall | undefined)[] = [];
  /** By row, those of the ranks here side by side. */
  ops: (Operation | undefined)[] = [];
  /** By place in `ops`: calls that came before the first rank's, as long as the row has no matched call. */
  readonly #early: Prepared<unknown>[] = [];
  /** By place in `ops`: virtual times of the calls; empty where time is real. */
  readonly #postedAtPs: number[] = [];
  /** Number of ranks that have come to each row. */
  readonly #arrived: number[] = [];
  readonly #ranks: number;
  readonly #clock: VirtualClock | undefined;
  /** Number of the first row of the tables. */
  #first: number;
  /** The first row that is open. */
  row = 0;
  /** The row behind the last one. */
  #end = 0;

  constructor(ranks: number, first: number, clock: VirtualClock | undefined) {
    this.#ranks = ranks;
    this.#first = first;
    this.#clock = clock;
  }

  /** True where no row is open. */
  get areComplete(): boolean {
    return this.row === this.#end;
  }

  /** True where the first open row lacks no call. */
  get isFirstComplete(): boolean {
    return this.#arrived[this.row] === this.#ranks;
  }

  /**
   * Appends the call of the rank at this index, the first rank's only if it was matched before. False for one that was not made
   * before together with the others of its row.
   */
  append(at: number, number: number, prepared: Prepared<unknown>, op: Operation): boolean {
    const row = number - this.#first;
    const place = row * this.#ranks + at;
    const clock = this.#clock;
    const known = this.matched[row];
    if (known !== undefined) {
      if (known.prepared[at] !== prepared) return false;
    } else if (at > 0) this.#early[place] = prepared;
    else if (!this.#isMadeWith(prepared.matched as MatchedCall, row)) return false;
    else this.matched[row] = prepared.matched;
    if (row === this.#end) this.#arrived[this.#end++] = 0;
    (this.#arrived[row] as number)++;
    this.ops[place] = op;
    if (clock !== undefined) this.#postedAtPs[place] = clock.now(op.worldRank);
    return true;
  }

  /** True where the calls of a row that came before the first rank's are those of its matched call. */
  #isMadeWith({ prepared }: MatchedCall, row: number): boolean {
    if (row === this.#end) return true;
    for (let at = 1, place = row * this.#ranks + 1; at < this.#ranks; at++, place++) {
      if (this.ops[place] !== undefined && this.#early[place] !== prepared[at]) return false;
    }
    return true;
  }

  /** Passes on to the next row. Gives the number of the one before. */
  pass(): number {
    return this.#first + this.row++;
  }

  /** Removes the first open row. The tables begin again where that was the last one. */
  take(): CompleteRow {
    const begin = this.row * this.#ranks;
    const ops = this.ops.slice(begin, begin + this.#ranks) as Operation[];
    const postedAtPs = this.#postedAtPs.slice(begin, begin + this.#ranks);
    this.matched[this.row] = undefined;
    const number = this.pass();
    if (this.areComplete) {
      this.#first += this.row;
      this.row = 0;
      this.#end = 0;
      // The calls reference buffers.
      this.#early.length = 0;
      this.ops = new Array<Operation>(this.#ranks);
    }
    return { number, ops, postedAtPs };
  }

  /** The calls of the open rows, with their numbers. */
  left(timeoutMs: number | undefined): { posting: Posting; number: number }[] {
    const begin = this.row * this.#ranks;
    return this.ops.slice(begin).flatMap((op, behind) => {
      const place = begin + behind;
      const [row, at] = [Math.floor(place / this.#ranks), place % this.#ranks];
      const made = this.matched[row]?.prepared[at] ?? this.#early[place];
      if (op === undefined || made === undefined) return [];
      const posting = repeatedPosting(made, op, timeoutMs, this.#postedAtPs[place]);
      return [{ posting, number: this.#first + row }];
    });
  }
}

/** One rank's repeated calls. */
export class RankCalls {
  /** This object while calls can be appended. It is set by a checked call of the rank: appended calls are not checked again. */
  current: RankCalls | undefined;
  /** The deadline of the calls that can be appended. */
  timeoutMs: number | undefined;
  /** The open rows, where several ranks are here or time is virtual. */
  rows: Rows | undefined;
  /** The submission to which a call is appended, where no other rank is here. */
  batch: CallBatch | undefined;
  /** Number of the rank's next collective call. */
  next = 0;
  /** The number of the open batch: it identifies that in objects that outlive it. */
  key = 0;
  /** Read for every call without a look at the state of the communicator: few objects are in the caches then. */
  readonly #streams: CommState["world"]["streams"];
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
    const { batch } = this;
    if (this.timeoutMs !== timeoutMs) return false;
    if (batch === undefined) return this.rows !== undefined;
    return batch.acceptsMore && (this.#streams.size === 0 || !this.#batches.isBlocked);
  }

  /** Appends a call that was checked before; false for one that has to be posted. Short enough to be inlined. */
  append(prepared: Prepared<unknown>, op: Operation): boolean {
    const { matched, rankCall } = prepared;
    const { batch } = this;
    if (rankCall === undefined) return false;
    if (batch === undefined || matched?.repeat === undefined) return this.appendTo(prepared, op);
    const number = this.next++;
    batch.add(matched, op);
    // Comes last, since callbacks of the operation may make calls.
    if (batch.submit(matched.repeat, number)) submitOpAs(op, number);
    return true;
  }

  /** Appends a call to rows, or messages with those made together with it. */
  appendTo(prepared: Prepared<unknown>, op: Operation, behind = none): boolean {
    const { rows, batch } = this;
    const { matched } = prepared;
    if (rows === undefined)
      return this.#batches.appendMessages(batch as CallBatch, matched?.messages, op, behind);
    if (this.at === 0 && !this.#batches.canRepeat(matched)) return false;
    this.#batches.sealLater();
    if (!rows.append(this.at, this.next, prepared, op)) return false;
    this.assign(op);
    if (rows.isFirstComplete) this.#batches.dispatch(rows);
    return true;
  }
}

/** The batches of one communicator. */
export class CallBatches {
  readonly #state: CommState;
  /** The ranks of this process. */
  readonly #ranks: readonly RankCalls[];
  readonly #byRank: RankCalls[] = [];
  readonly #clock: VirtualClock | undefined;
  #isOpen = false;
  /** The batches of this turn's rows, in the order in which the session took them. */
  readonly #submitted: CallBatch[] = [];
  /** The last of these batches: further rows are appended to it. */
  #last: CallBatch | undefined;
  /** Microtasks for which the rows still wait; 0 where they may stay open. */
  #hopsLeft = 0;

  constructor(state: CommState) {
    this.#state = state;
    this.#clock = state.session.scheduler.clock;
    this.#ranks = state.comm.local.map((rank, at) => new RankCalls(this, state, rank, at));
    for (const own of this.#ranks) this.#byRank[own.rank] = own;
  }

  /** The place of a call that is submitted now among the submissions of the world. */
  get nextSerial(): number {
    return ++this.#state.world.submissions;
  }

  /** The repeated calls of a rank of this process. */
  ofRank(rank: number): RankCalls {
    return this.#byRank[rank] as RankCalls;
  }

  /** Some call, or the session, keeps later calls waiting. */
  get isBlocked(): boolean {
    const { holdsWork, queues, world } = this.#state;
    return holdsWork || (world.streams.size > 0 && queues.areStreamsBusy);
  }

  /** Begins a batch with a repeated call, the rank's next one, or appends it to the open one; false where it has to be posted. */
  begin(
    prepared: Prepared<unknown>,
    op: Operation,
    timeoutMs: number | undefined,
    behind = none,
  ): boolean {
    const own = this.ofRank(op.rank);
    if (!own.accepts(timeoutMs)) {
      // Calls on another communicator come first: those without a complete row are in no queue yet.
      const { appending } = this.#state.world;
      if (appending !== this.#state) appending?.seal();
      if (!this.#state.isOpen || this.#state.isExecuting || this.isBlocked) return false;
      if (own.at === 0 && !this.canRepeat(prepared.matched)) return false;
      if (!this.#open(own, timeoutMs, prepared, op)) return false;
    }
    own.current = own;
    return behind === none ? own.append(prepared, op) : own.appendTo(prepared, op, behind);
  }

  /** True for a first rank's call that was made before: what is known of those of all ranks is cached with it. */
  canRepeat(matched: MatchedCall | undefined): boolean {
    if (this.#clock !== undefined) return matched?.isFixed === true;
    return (matched?.messages ?? matched)?.repeat !== undefined;
  }

  /**
   * Where time is virtual: false for calls with deadlines, which are compared with times; of ranks that resume one at a time;
   * where orders of issue are compared; and where the session queues work, or has ranks in other processes.
   */
  #hasRows(timeoutMs: number | undefined): boolean {
    const { queueing, isDistributed, world } = this.#state;
    if (timeoutMs !== undefined || queueing !== undefined || isDistributed) return false;
    return world.readyQueue === undefined && world.streams.issued === undefined;
  }

  /** Closes the rows after some microtasks: in virtual time, ranks may be behind by a few. */
  sealLater(): void {
    if (this.#hopsLeft > 0) return;
    this.#hopsLeft = this.#clock === undefined ? 1 : rowHops;
    void passed.then(this.#hop);
  }

  readonly #hop = (): void => {
    const rows = this.#ranks[0]?.rows;
    // Operations of submitted batches are marked when the rows are closed.
    const mayStayOpen = rows === undefined || (this.#clock !== undefined && rows.areComplete);
    this.#hopsLeft = mayStayOpen ? 0 : this.#hopsLeft - 1;
    if (this.#hopsLeft > 0) void passed.then(this.#hop);
    else if (!mayStayOpen) this.seal();
  };

  /** Opens a batch for a rank's call, or rows; false where the next calls of the ranks do not have one number. */
  #open(
    own: RankCalls,
    timeoutMs: number | undefined,
    { matched }: Prepared<unknown>,
    op: Operation,
  ): boolean {
    if (this.#clock !== undefined && !this.#hasRows(timeoutMs)) return false;
    const { world, session } = this.#state;
    if (this.#ranks.length === 1 && this.#clock === undefined) {
      this.seal();
      // The call is added again: arrays that begin with objects take further ones faster.
      own.batch = new CallBatch(this, timeoutMs, [matched], [op]);
    } else {
      if (this.#isOpen) return own.accepts(timeoutMs);
      if (this.#ranks.some(({ next }) => next !== own.next)) return false;
      const rows = new Rows(this.#ranks.length, own.next, this.#clock);
      for (const each of this.#ranks) each.rows = rows;
    }
    // The calls of the only rank here are submitted at once in real time, and may be open on several communicators.
    const isAlone = own.rows === undefined && session.info.localRanks.length === 1;
    if (!isAlone) world.appending = this.#state;
    this.#isOpen = true;
    for (const each of this.#ranks) {
      each.timeoutMs = timeoutMs;
      each.key++;
    }
    return true;
  }

  /** Dispatches the first row, which is complete; closes the rows where its calls have to be checked again. */
  dispatch(rows: Rows): void {
    const matched = rows.matched[rows.row] as MatchedCall;
    if (!matched.buffersLive()) this.seal();
    else if (this.#clock !== undefined) dispatchRepeated(this.#state, matched, rows.take());
    else this.#submit(matched, rows);
  }

  #submit(matched: MatchedCall, rows: Rows): void {
    let batch = this.#last;
    if (batch?.acceptsMore !== true) {
      const { ops, row } = rows;
      batch = new CallBatch(this, this.#ranks[0]?.timeoutMs, rows.matched, ops, row);
      this.#submitted.push(batch);
      this.#last = batch;
    }
    const number = rows.pass();
    batch.to = rows.row;
    batch.submit(matched.repeat as RepeatedCall, number);
  }

  /** Appends messages that are made together; false unless they were made together before. */
  appendMessages(
    batch: CallBatch,
    messages: MatchedMessages | undefined,
    first: Operation,
    behind: readonly MadeCall[],
  ): boolean {
    if (messages?.repeat === undefined || !messages.areMadeWith(behind)) return false;
    const row = batch.to;
    for (const [at, each] of messages.calls.entries()) {
      const op = behind[at - 1]?.op ?? first;
      const prepared = each.prepared[0] as PreparedTransfer<unknown>;
      const numbers = this.#state.messageNumbers.assignAgain(op.rank, op, prepared);
      batch.addMessages(each, op, numbers);
    }
    const isSubmitted = batch.submit(messages.repeat, first.call, row);
    if (isSubmitted) batch.markSubmitted(row);
    return true;
  }

  /** Queues a batch with its first call. */
  queue(batch: CallBatch, repeat: RepeatedCall, number: number): void {
    const { deadlines, submitted, world } = this.#state;
    if (batch.timeoutMs !== undefined)
      for (const op of batch.ops) deadlines?.watchOp(op, batch.timeoutMs, batch);
    submitted.add(batch, (completion) => repeat.submit(number, completion));
    if (world.nextId > 1) batch.placeRows(batch.serial);
  }

  /** Fails calls that could not be submitted; one without a number gets this one. */
  fail(postings: readonly Posting[], number: number, error: unknown): false {
    this.seal();
    for (const { op } of postings) if (op.call < 0) assignOp(op, number);
    failDispatched(this.#state, postings, error);
    return false;
  }

  /** Closes the batch: no call can be appended. Calls without a complete row are queued. */
  seal(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const [first] = this.#ranks;
    const left = first?.rows?.left(first.timeoutMs) ?? [];
    const submitted = this.#submitted.splice(0);
    this.#last = undefined;
    const { world } = this.#state;
    if (world.appending === this.#state) world.appending = undefined;
    for (const own of this.#ranks) {
      own.current = undefined;
      own.rows = undefined;
      if (own.batch !== undefined) own.batch.acceptsMore = false;
      own.batch = undefined;
    }
    for (const { posting, number } of left) {
      this.#state.enqueue(posting.op.rank, posting, number);
    }
    // Comes last, since callbacks of the operations may make calls.
    for (const batch of submitted) batch.markSubmitted();
  }

  /** Back to call 0 on every rank. */
  reset(): void {
    for (const own of this.#ranks) own.next = 0;
  }
}
