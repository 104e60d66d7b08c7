/** The runs of a communicator of which this process has one rank: its last call, made again, goes on with the one before. */
import type { RankCall, Session } from "../../backend.ts";
import type { Prepared } from "../../member/prepared.ts";
import { assignOp, type CommOp, completeOp, submitOp, submitOpAs } from "../../op.ts";
import type { CallNumbers } from "../calls/call-numbers.ts";
import type { Posting } from "../calls/posting.ts";
import { QueuedCall } from "../serve/call-queue.ts";
import { failServed } from "../serve/outcomes.ts";
import { serveAgain } from "../serve/serve.ts";
import type { ServeHost } from "../serve/serve-host.ts";
import type { Going, Goings, Track } from "./going.ts";
import { repeated } from "./repeated.ts";

/** The ledger's side. */
export interface RunsHost {
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
export class Runs implements Goings, Track {
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
