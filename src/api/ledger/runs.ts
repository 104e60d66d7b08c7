/** The runs of a communicator of which this process has one rank: its last call, made again, goes on with the one before. */
import type { RankCall, Session } from "../backend.ts";
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
    run.add(prepared, op);
    serveAgain(this.#serve, run, known, number);
    if (run.queue !== undefined) this.#run = run;
  }

  /**
   * Has one more call done with the run that is going on; false where there is none, or it is too late. All calls of a run
   * are done at once, so that the deadline of the first is that of all.
   */
  goOn(
    known: Agreement,
    prepared: Prepared<unknown>,
    op: CommOp,
    timeoutMs: number | undefined,
  ): boolean {
    const run = this.#run;
    if (run === undefined || !run.takesMore || run.timeoutMs !== timeoutMs) return false;
    const number = run.next;
    try {
      this.#session.enqueueBehind?.(known, number);
    } catch (error) {
      // Its number is used up.
      op.assign(number);
      run.next++;
      this.seal();
      failServed(
        this.#serve,
        [repeated(prepared.made as RankCall, prepared, op, timeoutMs)],
        error,
      );
      return true;
    }
    op.assign(number);
    run.add(prepared, op);
    op.submit();
    return true;
  }

  /** Nothing goes on with the last run any more. */
  seal(): void {
    const run = this.#run;
    if (run === undefined) return;
    this.#run = undefined;
    this.#numbers.advance(run.rank, run.next);
  }
}
