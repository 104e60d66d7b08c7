/** The runs of a communicator of which this process has one rank: its last call, made again, goes on with the one before. */
import type { Session } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { CallNumbers } from "./call-numbers.ts";
import type { Going, Goings, Track } from "./going.ts";
import { failServed } from "./outcomes.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";
import { RepeatedCalls } from "./repeated-calls.ts";
import { serveAgain } from "./serve.ts";
import type { ServeHost } from "./serve-host.ts";

/** What is asked of the ledger. */
export interface RunsHost {
  readonly serve: ServeHost;
  readonly numbers: CallNumbers;
  /** A call has to be done in time. */
  watch(posting: Posting): void;
}

/** Calls in a row of the only rank that a process has on a communicator. */
class Run extends RepeatedCalls implements Going {
  readonly key = {};
  readonly rank: number;
  /** Number of the call that comes next. */
  next: number;
  readonly #runs: Runs;
  /** Every call asks it. */
  readonly #session: Session;

  constructor(runs: Runs, rank: number, first: number, timeoutMs: number | undefined) {
    super(timeoutMs);
    this.#runs = runs;
    this.#session = runs.session;
    this.rank = rank;
    this.next = first;
  }

  takes(timeoutMs: number | undefined): boolean {
    return this.takesMore && this.timeoutMs === timeoutMs;
  }

  goOn(prepared: Prepared<unknown>, op: CommOp): boolean {
    const { agreement: known, made } = prepared;
    if (known?.work === undefined || made === undefined) return false;
    try {
      this.#session.enqueueBehind?.(known, this.next);
    } catch (error) {
      this.#runs.lose(this, repeated(made, prepared, op, this.timeoutMs), error);
      return true;
    }
    op.submittedAs(this.next++);
    this.add(prepared, op);
    return true;
  }
}

/** Begins runs, and goes on with the last one for as long as nothing else is asked of the ledger. */
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
    if (known?.work === undefined) return false;
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
    posting.op.assign(run.next++);
    this.seal();
    failServed(this.#host.serve, [posting], error);
  }

  seal(): void {
    const run = this.current;
    if (run === undefined) return;
    this.current = undefined;
    run.takesMore = false;
    this.#host.numbers.advance(run.rank, run.next);
  }
}
