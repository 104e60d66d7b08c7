/** When an object may make calls: one at a time, and none once it was disposed or one has failed in the middle. */
import { CommClosedError, type CommOp, type Communicator } from "../api/index.ts";

/** Runs `release` as soon as a call under way no longer has the buffers that it gives back. */
export function releaseAfter(op: CommOp | undefined, release: () => void): void {
  // Awaiting the call instead would make the rank look as if it waited for it.
  if (op?.pending === true) op.whenSettled(release);
  else release();
}

/** Guards an object with methods that consist of several calls of the communicator. */
export class CallGuard {
  readonly #subject: string;
  readonly #comm: Communicator;
  readonly #release: () => void;
  #running: string | undefined;
  #isDisposed = false;
  /** Why no call can be made any more. */
  #fault: string | undefined;

  /** `release` gives back its memory: when it was disposed and nothing is running; may be requested again. */
  constructor(subject: string, comm: Communicator, release: () => void) {
    this.#subject = subject;
    this.#comm = comm;
    this.#release = release;
  }

  /**
   * Does what nothing else may come between, such as a `step`. Where it fails there is no other, because ranks are out of step
   * with each other in the middle, unless the error `leavesInStep`.
   *
   * @throws CommClosedError before anything is done, as `assertUsable`.
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
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!leavesInStep(error)) this.#fault = `an earlier ${what} failed: ${why}`;
      throw error;
    } finally {
      this.#running = undefined;
      if (this.#isDisposed) this.#release();
    }
  }

  /** Refuses while something is running. */
  assertIdle(action: string): void {
    if (this.#running === undefined) return;
    throw this.#closed(action, `a ${this.#running} is still running`, "await it first");
  }

  /** Refuses while something is running, after the end, and after a failure in the middle. */
  assertUsable(action: string): void {
    this.assertIdle(action);
    if (this.#isDisposed) throw this.#closed(action, "it was disposed", "create another one");
    if (this.#fault === undefined) return;
    const hint =
      "ranks may be out of step: rebuild the world, create another one and restore a checkpoint";
    throw this.#closed(action, this.#fault, hint);
  }

  /** The end; what is running comes to its own. */
  dispose(): void {
    this.#isDisposed = true;
    if (this.#running === undefined) this.#release();
  }

  #closed(action: string, why: string, hint: string): CommClosedError {
    const { rank, size, name } = this.#comm;
    return new CommClosedError(
      { headline: `${this.#subject}.${action}: ${why}`, hint },
      { rank, size, comm: name },
    );
  }
}
