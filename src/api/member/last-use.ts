/**
 * The last of the same calls in a run, for those who read the memory that it was lent.
 *
 * Memory lives long and operations are new, and a long-lived object that is made to point to a new one has to be noted for
 * the garbage collector. So each run has one thing that memory points to, and what changes with every call is in there.
 */
import type { Going } from "../ledger/going.ts";
import type { CommOp } from "../op.ts";

/** Whoever awaits it awaits the operation that is the last by then. */
export class LastUse implements PromiseLike<unknown> {
  readonly run: Going;
  op: CommOp;

  constructor(run: Going, op: CommOp) {
    this.run = run;
    this.op = op;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is awaited in place of the operation
  then<A = unknown, B = never>(
    onDone?: ((value: unknown) => A | PromiseLike<A>) | null,
    onFailed?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.op.then(onDone, onFailed);
  }
}
