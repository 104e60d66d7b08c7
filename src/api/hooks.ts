/** Callbacks around every operation of a communicator: for logs, recorders and checks. */
import type { CollectiveName } from "./collectives/spec.ts";
import type { DType } from "./dtype.ts";
import { InvalidArgumentError } from "./errors.ts";
import { textOf } from "./option-kinds.ts";
import { warnOfRejection } from "./warnings.ts";

/** What a hook is told about an operation. */
export interface OpInfo {
  readonly comm: string;
  readonly rank: number;
  readonly call: number;
  readonly collective: CollectiveName;
  readonly dtype: DType | undefined;
  readonly count: number;
}

/** Takes a callback off again; operations that are open still tell it of their end. */
export type Unhook = () => void;

/**
 * The hooks of one communicator. A hook that throws makes the operation fail with its error. Nobody awaits what hooks return:
 * the rejection of a promise is a process warning of type `TwincclUnseenFailure`. What is no function is refused by
 * `InvalidArgumentError`.
 *
 * Who is told of an operation, and of its end, is settled when it is posted: those who are there then. Whoever is added or
 * taken off later, by a hook or while the operation is open, is told, or no longer told, of those that are posted next. The
 * same function may be added several times: it is told as often, and each time is taken off by itself.
 */
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

/** Whose hooks they are: one rank's end of a communicator. */
interface Owner {
  readonly rank: number;
  readonly size: number;
  readonly comm: string;
}

/** A callback as it was added: one that is added twice is two. */
interface Added<A extends readonly unknown[]> {
  readonly callback: (...args: A) => unknown;
}

/** Tells those of one moment, whatever one of them throws; then throws what the first one threw. */
type Tell<A extends readonly unknown[]> = (...args: A) => void;

/** Callbacks of one kind, in the order in which they were added. */
class Callbacks<A extends readonly unknown[]> {
  readonly #name: string;
  readonly #owner: Owner;
  /** What one of them is called where it is talked of. */
  readonly #one: string;
  /** A list never changes: whoever has one goes on with it. */
  #present: readonly Added<A>[] = [];

  constructor(name: keyof Hooks, owner: Owner) {
    this.#name = name;
    this.#owner = owner;
    this.#one = `rank ${owner.rank}: a hook of hooks.${name} on "${owner.comm}"`;
  }

  get areNone(): boolean {
    return this.#present.length === 0;
  }

  add(callback: (...args: A) => unknown): Unhook {
    if (typeof callback !== "function") {
      throw new InvalidArgumentError(
        { headline: `hooks.${this.#name}: found ${textOf(callback)}, needs a function` },
        { ...this.#owner, field: "callback" },
      );
    }
    const added = { callback };
    this.#present = [...this.#present, added];
    return () => {
      this.#present = this.#present.filter((each) => each !== added);
    };
  }

  /** How those are told who are there now. */
  now(): Tell<A> {
    const present = this.#present;
    return (...args) => this.#tell(present, args);
  }

  #tell(present: readonly Added<A>[], args: A): void {
    let fault: { readonly error: unknown } | undefined;
    for (const { callback } of present) {
      try {
        warnOfRejection(callback(...args), this.#one);
      } catch (error) {
        fault ??= { error };
      }
    }
    if (fault !== undefined) throw fault.error;
  }
}

/** The callbacks of one communicator, called in the order in which they were added. */
export class HookList implements Hooks {
  readonly #before: Callbacks<[info: OpInfo]>;
  readonly #after: Callbacks<[info: OpInfo, error: unknown]>;
  readonly #onAbort: Callbacks<[reason: unknown]>;

  /** True when an operation has nobody to tell; kept, because every call asks. */
  idle = true;

  constructor(owner: Owner) {
    this.#before = new Callbacks("before", owner);
    this.#after = new Callbacks("after", owner);
    this.#onAbort = new Callbacks("onAbort", owner);
  }

  before(callback: (info: OpInfo) => void): Unhook {
    return this.#add(this.#before, callback);
  }

  after(callback: (info: OpInfo, error: unknown) => void): Unhook {
    return this.#add(this.#after, callback);
  }

  onAbort(callback: (reason: unknown) => void): Unhook {
    return this.#onAbort.add(callback);
  }

  posting(info: OpInfo): void {
    this.#before.now()(info);
  }

  /** Tells those of the end of an operation who are there now, when it is posted. */
  atEnd(): Tell<[info: OpInfo, error: unknown]> {
    return this.#after.now();
  }

  aborted(reason: unknown): void {
    this.#onAbort.now()(reason);
  }

  #add<A extends readonly unknown[]>(
    callbacks: Callbacks<A>,
    callback: (...args: A) => unknown,
  ): Unhook {
    const unhook = callbacks.add(callback);
    this.#look();
    return () => {
      unhook();
      this.#look();
    };
  }

  #look(): void {
    this.idle = this.#before.areNone && this.#after.areNone;
  }
}
