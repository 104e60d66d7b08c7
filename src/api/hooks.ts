/** Callbacks around every operation of a communicator: for logs, recorders and checks. */
import type { CollectiveName } from "./collectives/spec.ts";
import type { DType } from "./dtype.ts";

/** What a hook is told about an operation. */
export interface OpInfo {
  readonly comm: string;
  readonly rank: number;
  readonly call: number;
  readonly collective: CollectiveName;
  readonly dtype: DType | undefined;
  readonly count: number;
}

/** Takes a callback off again. */
export type Unhook = () => void;

/** The hooks of one communicator. A hook that throws makes the operation fail with its error. */
export interface Hooks {
  /** Called when an operation is posted, before any rank's data moves. */
  before(callback: (info: OpInfo) => void): Unhook;
  /** Called when an operation is settled; `error` is set when it failed. */
  after(callback: (info: OpInfo, error: unknown) => void): Unhook;
  /**
   * Called once when `abort` ends the communicator, or `close` gives its open calls up. What it throws is thrown there, after
   * everything was done. A deadline that passes and a rank that is lost end it too; of those its calls tell.
   */
  onAbort(callback: (reason: unknown) => void): Unhook;
}

/** The callbacks of one communicator, called in the order in which they were added. */
export class HookList implements Hooks {
  readonly #before = new Set<(info: OpInfo) => void>();
  readonly #after = new Set<(info: OpInfo, error: unknown) => void>();
  readonly #onAbort = new Set<(reason: unknown) => void>();

  /** True when an operation has nobody to tell; kept, because every call asks. */
  idle = true;

  before(callback: (info: OpInfo) => void): Unhook {
    return this.#add(this.#before, callback);
  }

  after(callback: (info: OpInfo, error: unknown) => void): Unhook {
    return this.#add(this.#after, callback);
  }

  onAbort(callback: (reason: unknown) => void): Unhook {
    this.#onAbort.add(callback);
    return () => this.#onAbort.delete(callback);
  }

  posting(info: OpInfo): void {
    for (const callback of this.#before) callback(info);
  }

  settled(info: OpInfo, error: unknown): void {
    for (const callback of this.#after) callback(info, error);
  }

  aborted(reason: unknown): void {
    for (const callback of this.#onAbort) callback(reason);
  }

  #add<C>(callbacks: Set<C>, callback: C): Unhook {
    callbacks.add(callback);
    this.idle = false;
    return () => {
      const removed = callbacks.delete(callback);
      this.idle = this.#before.size === 0 && this.#after.size === 0;
      return removed;
    };
  }
}
