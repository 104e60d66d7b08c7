/** Decides when an object may make calls: one at a time, and none after its disposal or after one failed in the middle. */
import { CommAbortedError, CommClosedError, type CommOp, type Communicator } from "../api/index.ts";
import { whenSettled } from "../api/op.ts";
import { factsOf } from "./argument-checks.ts";

/** Runs `release` as soon as no call under way uses the buffers that it frees. */
export function releaseAfter(op: CommOp | undefined, release: () => void): void {
  // Awaiting the call instead would make the rank look as if it waited for it.
  if (op?.pending === true) whenSettled(op, release);
  else release();
}

/**
 * Takes the failures of calls as seen, which nothing awaits after a step that failed in the middle. Returns the error of the step:
 * the failure of one of them, where that ended the communicator and the step met its end alone.
 */
function abandon(ops: readonly CommOp[], error: unknown): unknown {
  for (const op of ops) {
    // Not before it fails: the rank would look as if it waited for it.
    whenSettled(op, (failure) => {
      if (failure !== undefined) queueMicrotask(() => op.catch(() => undefined));
    });
  }
  if (!(error instanceof CommAbortedError)) return error;
  return ops.find((op) => op.error !== undefined && op.error === error.cause)?.error ?? error;
}

/** Guards an object with methods that consist of several calls of the communicator. */
export class CallGuard {
  readonly #subject: string;
  readonly #comm: Communicator;
  readonly #release: () => void;
  readonly #posted: () => readonly CommOp[];
  #running: string | undefined;
  #isDisposed = false;
  /** The reason why no further call is possible. */
  #fault: string | undefined;

  /**
   * `release` frees its memory: after the disposal, when no call is running; may be requested again. `posted` are the calls that a
   * method posts before it awaits them.
   */
  constructor(
    subject: string,
    comm: Communicator,
    release: () => void,
    posted: () => readonly CommOp[] = () => [],
  ) {
    this.#subject = subject;
    this.#comm = comm;
    this.#release = release;
    this.#posted = posted;
  }

  /**
   * Runs a method that no other may interrupt, such as `step`. After a failure no other follows, because ranks are out of step
   * with each other in the middle, unless the error `leavesInStep`.
   *
   * @throws CommClosedError before any call, as `assertUsable`.
   */
  async run<T>(
    action: string,
    what: string,
    act: () => Promise<T>,
    leavesInStep: (error: unknown) => boolean = () => false,
  ): Promise<T> {
    this.assertUsable(action);
    this.#running = what;
    try {
      return await act();
    } catch (thrown) {
      const error = abandon(this.#posted(), thrown);
      const why = error instanceof Error ? error.message : String(error);
      if (!leavesInStep(error)) this.#fault = `an earlier ${what} failed: ${why}`;
      throw error;
    } finally {
      this.#running = undefined;
      if (this.#isDisposed) this.#release();
    }
  }

  /** Refuses while a method is running. */
  assertIdle(action: string): void {
    if (this.#running === undefined) return;
    throw this.#closed(action, `a ${this.#running} is still running`, "await it first");
  }

  /** Refuses while a method is running, after the end, and after a failure in the middle. */
  assertUsable(action: string): void {
    this.assertIdle(action);
    if (this.#isDisposed) throw this.#closed(action, "it was disposed", "create another one");
    if (this.#fault === undefined) return;
    const hint =
      "ranks may be out of step: rebuild the world, create another one and restore a checkpoint";
    throw this.#closed(action, this.#fault, hint);
  }

  /** Ends the object; a running method completes. */
  dispose(): void {
    this.#isDisposed = true;
    if (this.#running === undefined) this.#release();
  }

  #closed(action: string, why: string, hint: string): CommClosedError {
    const headline = `${this.#subject}.${action}: ${why}`;
    return new CommClosedError({ headline, hint }, factsOf(this.#comm));
  }
}
