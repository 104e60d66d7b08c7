/**
 * The last of equal calls that are made one behind the other, for readers of its memory.
 *
 * Memory lives long and operations are new, and a long-lived object that is made to point to a new one has to be noted for
 * the garbage collector. So there is one thing that memory points to, and what changes with every call is in there.
 */

/** Readers take the operation at once: later it may be another one. */
export class LastUse {
  /** Stands for what the calls belong to. */
  readonly key: object;
  op: PromiseLike<unknown>;

  constructor(key: object, op: PromiseLike<unknown>) {
    this.key = key;
    this.op = op;
  }
}
