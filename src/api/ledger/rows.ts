/**
 * Calls that several ranks of one process make again: each rank's stand in a lane, and a row across the lanes is a call.
 *
 * The ranks' programs run one after another, so that the last one's calls complete row after row, with a driver at work
 * between them: a row needs no more than its operations and one comparison a rank. Lanes live for one turn. What has not
 * come to be a row by then, or when anything else is asked of the ledger, is posted as other calls are.
 */
import type { CommInfo, RankCall } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { Agreement } from "./agreement.ts";
import type { Going, Goings, Track } from "./going.ts";
import { isGone } from "./lent.ts";
import { failServed } from "./outcomes.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";
import { RepeatedCalls } from "./repeated-calls.ts";
import type { RunsHost } from "./runs.ts";
import { serveAgain } from "./serve.ts";

/** What is asked of the ledger. */
export interface RowsHost extends RunsHost {
  /** Takes a rank's call, which has its number, as one that was posted. */
  place(rank: number, posting: Posting, number: number): void;
}

/** What a rank's next call goes on with. */
interface RankTrack {
  current: Lane | undefined;
}

/** One rank's calls of a turn. */
class Lane implements Going {
  readonly key = {};
  readonly rank: number;
  readonly ops: CommOp[] = [];
  /** What their calls were made from. */
  readonly prepared: Prepared<unknown>[] = [];
  /** The turn is over, or something else was asked of the ledger. */
  isOver = false;
  readonly #rows: Rows;
  readonly #first: number;
  readonly #timeoutMs: number | undefined;

  constructor(rows: Rows, rank: number, first: number, timeoutMs: number | undefined) {
    this.#rows = rows;
    this.rank = rank;
    this.#first = first;
    this.#timeoutMs = timeoutMs;
  }

  /** How many there are. */
  get length(): number {
    return this.ops.length;
  }

  takes(timeoutMs: number | undefined): boolean {
    return !this.isOver && this.#timeoutMs === timeoutMs;
  }

  goOn(prepared: Prepared<unknown>, op: CommOp): boolean {
    if (prepared.made === undefined) return false;
    const at = this.ops.length;
    op.assign(this.#first + at);
    this.ops.push(op);
    this.prepared.push(prepared);
    this.#rows.came(at);
    return true;
  }

  posting(at: number): Posting {
    const prepared = this.prepared[at] as Prepared<unknown>;
    return repeated(prepared.made as RankCall, prepared, this.ops[at] as CommOp, this.#timeoutMs);
  }
}

/** The lanes of the ranks of one communicator that live in this process. */
export class Rows implements Goings {
  readonly #host: RowsHost;
  readonly #local: readonly number[];
  /** By rank. */
  readonly #tracks: readonly RankTrack[];
  /** Those of this turn; none before its first call. */
  #lanes: readonly Lane[] = [];
  #timeoutMs: number | undefined;
  /** Number of the first row. */
  #first = 0;
  /** How many rows were handed to the session. */
  #handed = 0;
  /** The last of them, with all that it was handed right behind. */
  #calls: RepeatedCalls | undefined;

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
    // What rows were compared as stands with the first rank's calls.
    if (rank === this.#local[0] && prepared.agreement?.work === undefined) return false;
    if (this.#lanes.length === 0 && !this.#open(rank, timeoutMs)) return false;
    const lane = this.#lanes[this.#local.indexOf(rank)];
    if (lane?.takes(timeoutMs) !== true) return false;
    this.#track(rank).current = lane;
    return lane.goOn(prepared, op);
  }

  /** Every rank has a lane from here on; false where their next calls are not one row. */
  #open(rank: number, timeoutMs: number | undefined): boolean {
    const { numbers } = this.#host;
    const first = numbers.next(rank);
    if (this.#local.some((each) => numbers.next(each) !== first)) return false;
    this.#lanes = this.#local.map((each) => new Lane(this, each, first, timeoutMs));
    this.#timeoutMs = timeoutMs;
    this.#first = first;
    this.#handed = 0;
    queueMicrotask(() => this.seal());
    return true;
  }

  /** A call has come to a row: where it was the last one, and the rows before were handed over, so is this. */
  came(row: number): void {
    if (row !== this.#handed) return;
    const lanes = this.#lanes;
    for (const lane of lanes) if (lane.length <= row) return;
    const known = lanes[0]?.prepared[row]?.agreement;
    if (known !== undefined && this.#isKnown(known, row)) this.#hand(known, row);
    else this.seal();
  }

  /** The calls of a row were compared and worked out, and their buffers are all there. */
  #isKnown({ work, prepared, calls }: Agreement, row: number): boolean {
    const lanes = this.#lanes;
    if (work === undefined || prepared.length !== lanes.length) return false;
    for (let at = 0; at < lanes.length; at++) {
      if (lanes[at]?.prepared[row] !== prepared[at]) return false;
    }
    return !calls.some(isGone);
  }

  #hand(known: Agreement, row: number): void {
    this.#handed++;
    if (this.#calls?.takesMore === true) this.#handBehind(this.#calls, known, row);
    else this.#handApart(known, row);
  }

  #handBehind(calls: RepeatedCalls, known: Agreement, row: number): void {
    const { serve } = this.#host;
    try {
      serve.session.enqueueBehind?.(known, this.#first + row);
    } catch (error) {
      const postings = this.#lanes.map((lane) => lane.posting(row));
      this.seal();
      failServed(serve, postings, error);
      return;
    }
    for (const { ops, prepared } of this.#lanes) {
      const op = ops[row] as CommOp;
      op.submit();
      calls.add(prepared[row] as Prepared<unknown>, op);
    }
  }

  #handApart(known: Agreement, row: number): void {
    const { serve, watch } = this.#host;
    const calls = new RepeatedCalls(this.#timeoutMs);
    for (const { ops, prepared } of this.#lanes) {
      calls.add(prepared[row] as Prepared<unknown>, ops[row] as CommOp);
    }
    for (const posting of calls.postings) watch(posting);
    serveAgain(serve, calls, known, this.#first + row);
    this.#calls = calls;
  }

  seal(): void {
    const lanes = this.#lanes;
    if (lanes.length === 0) return;
    const [first, handed] = [this.#first, this.#handed];
    this.#lanes = [];
    this.#calls = undefined;
    for (const lane of lanes) {
      lane.isOver = true;
      this.#track(lane.rank).current = undefined;
      this.#host.numbers.advance(lane.rank, first + lane.length);
    }
    for (const lane of lanes) {
      for (let row = handed; row < lane.length; row++) {
        this.#host.place(lane.rank, lane.posting(row), first + row);
      }
    }
  }
}
