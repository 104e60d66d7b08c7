/** Callbacks around every operation of a communicator: for logs, recorders and checks. */
import type { CollectiveName } from "./collectives/spec.ts";
import type { DType } from "./dtype.ts";
import { InvalidArgumentError } from "./errors.ts";
import { textOf } from "./option-kinds.ts";
import { warnOfRejection } from "./warnings.ts";

/**
 * One rank's part of an operation, as its hooks get it. `before` and `after` get the same object, so a `WeakMap` can keep data of
 * an operation in between.
 */
export interface OpInfo {
  /** Name of the communicator, which no other one of the world has. */
  readonly comm: string;
  /** The rank that made the call: its number in the communicator, not in the world. */
  readonly rank: number;
  /**
   * Number of the call on its communicator, as `CommOp.call` and errors have it: on all ranks of a collective call the same;
   * sends and receives are counted apart. In `before` it is the one that the call is about to get. A call that is refused
   * there, or for what became of the communicator, gets none, and the next one has that number. Where hooks of `before` make
   * calls of their own, which come first, `after` has the right one. On channels a group has the number of its first call,
   * and an empty one -1.
   */
  readonly call: number;
  readonly collective: CollectiveName;
  /** Of the elements; `undefined` for what moves none: barriers, splits, recordings and groups. */
  readonly dtype: DType | undefined;
  /**
   * Elements of this rank's part, as NCCL counts them: those sent of an all-to-allv, and of a sendRecv. How many calls for a
   * capture, a replay and, on channels, a group. 0 for a barrier and a split.
   */
  readonly count: number;
  /** Where the program made the call, as `file:line:column`; `undefined` unless the world keeps `callSites`. */
  readonly place: string | undefined;
}

/** Removes a callback; operations that are open still call it at their end. */
export type Unhook = () => void;

/**
 * The hooks of one rank's end of one communicator: they are called for this rank's operations there, and for no other's. Children
 * of `split` inherit none. Those of the communicator of all ranks stay from run to run, and are gone after `rebuild`.
 *
 * The callbacks of an operation, and of its end, are those present when it is posted, in the order in which they were added. A
 * callback that is added or removed later, by a hook or while the operation is open, takes effect with the next operation. A
 * function that is added several times is called as often, and each addition is removed by itself. Of a group the calls have
 * hooks, and of a replay as `Graph.replay` says. A call that is refused for its arguments or its signal, or because its rank may
 * make none, has no hooks. One that is refused because the communicator was aborted, or because of an unobserved failure, has
 * those of a failed operation.
 *
 * A hook that throws makes the operation fail with its error, the first one where several throw; one that failed already keeps
 * its own. All other hooks run nevertheless. A promise that a hook returns is not awaited: its rejection is a process warning of
 * type `TwincclUnseenFailure`, and fails nothing.
 *
 * A callback must be a function; `InvalidArgumentError` with the field `callback` is thrown otherwise.
 *
 * @example
 * const spans = new WeakMap<OpInfo, Span>();
 * comm.hooks.before((info) => spans.set(info, tracer.startSpan(`${info.collective} ${info.call}`)));
 * comm.hooks.after((info, error) => {
 *   const span = spans.get(info);
 *   if (error !== undefined) span?.recordException(error as Error);
 *   span?.end();
 * });
 */
export interface Hooks {
  /** Called when an operation is posted, before any rank's data moves. An error thrown here refuses it on this rank. */
  before(callback: (info: OpInfo) => void): Unhook;
  /**
   * Called when an operation is settled; `error` is set when it failed. It comes for every operation that had `before`. A
   * hook that throws here changes nothing on other ranks.
   */
  after(callback: (info: OpInfo, error: unknown) => void): Unhook;
  /**
   * Called once when `abort` ends the communicator, with its reason. Also, where time is real, when `close` gives up calls that
   * were not done within its bound, with the `CommTimeoutError` of that; and when a call of this rank waits and another process
   * has aborted the communicator, for whatever reason, with a `RemoteRankError` that names rank and reason. Its error is
   * thrown there, after everything was done and all other hooks ran; of another process's abort it is a process warning.
   *
   * Other ends have no hook of their own, and show in the calls that fail with them: closing a world with open calls on the
   * simulation, a rank that throws, a deadlock, a deadline that passes, a signal, and a rank that is lost.
   */
  onAbort(callback: (reason: unknown) => void): Unhook;
}

/** The owner of hooks: one rank's end of a communicator. */
interface Owner {
  readonly rank: number;
  readonly size: number;
  readonly comm: string;
}

/** A callback as it was added: one that is added twice is two. */
interface Added<A extends readonly unknown[]> {
  readonly callback: (...args: A) => unknown;
}

/** Calls the callbacks of one moment, also behind one that throws; then throws the first error. */
type Notify<A extends readonly unknown[]> = (...args: A) => void;

/** Callbacks of one kind, in the order in which they were added. */
class Callbacks<A extends readonly unknown[]> {
  readonly #name: string;
  readonly #owner: Owner;
  /** The name of one of them in messages. */
  readonly #one: string;
  /** A list never changes: operations keep theirs. */
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

  /** Calls the callbacks that are present now. */
  now(): Notify<A> {
    const present = this.#present;
    return (...args) => this.#notify(present, args);
  }

  #notify(present: readonly Added<A>[], args: A): void {
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

  /** True when an operation has no hooks; kept, because every call reads it. */
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

  notifyBefore(info: OpInfo): void {
    this.#before.now()(info);
  }

  /** Calls at the end of an operation the callbacks that are present now, when it is posted. */
  afterNotifier(): Notify<[info: OpInfo, error: unknown]> {
    return this.#after.now();
  }

  notifyAborted(reason: unknown): void {
    this.#onAbort.now()(reason);
  }

  #add<A extends readonly unknown[]>(
    callbacks: Callbacks<A>,
    callback: (...args: A) => unknown,
  ): Unhook {
    const unhook = callbacks.add(callback);
    this.#update();
    return () => {
      unhook();
      this.#update();
    };
  }

  #update(): void {
    this.idle = this.#before.areNone && this.#after.areNone;
  }
}
