/** The runs of a communicator of which this process has one rank: its last call, made again, goes on with the one before. */
import type { Session } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { Agreement } from "./agreement.ts";
import type { CallNumbers } from "./call-numbers.ts";
import type { Posting } from "./posting.ts";
import { repeated } from "./repeated.ts";
import { Run } from "./run.ts";
import { failServed, type ServeHost, serveAgain } from "./serve.ts";

/** Begins runs, and goes on with the last one for as long as nothing else is asked of the ledger. */
export class Runs {
  readonly #serve: ServeHost;
  /** That of `#serve`: every call asks it. */
  readonly #session: Session;
  readonly #numbers: CallNumbers;
  #run: Run | undefined;

  constructor(serve: ServeHost, numbers: CallNumbers) {
    this.#serve = serve;
    this.#session = serve.session;
    this.#numbers = numbers;
  }

  /** Begins a run with a call that was made before. */
  begin(rank: number, known: Agreement, { prepared, op }: Posting, timeoutMs?: number): void {
    this.seal();
    const number = this.#numbers.collective(rank, op);
    const run = new Run(rank, number, timeoutMs);
    run.begin(prepared, op);
    serveAgain(this.#serve, run, known, number);
    if (run.queue !== undefined) this.#run = run;
  }

  /** The run that is going on. It does for as long as its rank may make calls. */
  get current(): Run | undefined {
    return this.#run;
  }

  /**
   * Has one more call done with a run that takes it; false where the call was not worked out before. All calls of a run are
   * done at once, so that the deadline of the first is that of all.
   */
  goOn(run: Run, prepared: Prepared<unknown>, op: CommOp): boolean {
    const { agreement: known, made } = prepared;
    if (known?.work === undefined || made === undefined) return false;
    try {
      this.#session.enqueueBehind?.(known, run.next);
    } catch (error) {
      this.#lose(run, repeated(made, prepared, op, run.timeoutMs), error);
      return true;
    }
    run.add(prepared, op);
    return true;
  }

  /** A call of a run could not be made: it fails, and its number is used up. */
  #lose(run: Run, posting: Posting, error: unknown): void {
    posting.op.assign(run.next++);
    this.seal();
    failServed(this.#serve, [posting], error);
  }

  /** Nothing goes on with the last run any more. */
  seal(): void {
    const run = this.#run;
    if (run === undefined) return;
    this.#run = undefined;
    this.#numbers.advance(run.rank, run.next);
  }
}
