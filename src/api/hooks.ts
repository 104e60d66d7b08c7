/** Callbacks around every operation of a communicator: for logs, recorders and checks. */

import type { DType } from "./dtype.ts";
import { type Caller, InvalidArgumentError } from "./errors.ts";
import { textOf } from "./option-kinds.ts";
import { runAll } from "./run-all.ts";
import type { CollectiveName } from "./specification.ts";
import { warnOfRejection } from "./warnings.ts";

/**
 * One rank's part of an operation, the argument of its hooks. `before` and `after` receive the same object, so that a `WeakMap`
 * can hold data of the operation.
 */
export interface OpInfo {
  /** Name of the communicator, unique in its world. */
  readonly comm: string;
  /** The calling rank: its number in the communicator, not in the world. */
  readonly rank: number;
  /**
   * Number of the call on its communicator, equal to `CommOp.call` and to the number in errors. All ranks of a collective call
   * have the same number; sends and receives are counted separately. In `before` it is the next number. A call refused by a
   * hook, or because its communicator ended, does not use up its number. If hooks of `before` make calls, those come first, and
   * only `after` has the final number. On channels, a group has the number of its first call; an empty group has -1.
   */
  readonly call: number;
  readonly collective: CollectiveName;
  /** Dtype of the elements; `undefined` for calls without elements: barriers, splits, recordings and groups. */
  readonly dtype: DType | undefined;
  /**
   * Elements of this rank's part, counted as in NCCL; for an all-to-allv and a sendRecv, the elements sent. For a capture, a
   * replay and, on channels, a group: the number of calls. 0 for a barrier and a split.
   */
  readonly count: number;
  /** Call site in the program, as `file:line:column`; `undefined` unless the world records `callSites`. */
  readonly place: string | undefined;
}

/** Removes a callback; open operations still call it at their end. */
export type Unhook = () => void;

/**
 * The hooks of one rank on one communicator, called for this rank's operations alone. Children of `split` do not inherit them.
 * Hooks on the communicator of all ranks stay across runs, until `rebuild`.
 *
 * An operation calls the callbacks present at its posting, in the order of their addition. A callback added or removed later,
 * by a hook or during the operation, takes effect with the next operation. A function added several times is called that many
 * times, and each addition is removed separately. In a group, each call runs its hooks; for a replay see `Graph.replay`. A call
 * refused for its arguments, its signal or the state of its rank runs no hooks. A call refused because of an abort or an
 * unobserved failure runs the hooks of a failed operation.
 *
 * A hook that throws fails the operation with its error; with several, the first error counts. An operation that has already
 * failed keeps its error. All other hooks still run. A promise returned by a hook is not awaited: its rejection is a process
 * warning of type `TwincclUnseenFailure`, and fails no operation.
 *
 * A callback that is not a function throws an `InvalidArgumentError` with the field `callback`.
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
  /**
   * Called when an operation is posted, before any rank's data moves. An error thrown here refuses the operation on this rank.
   */
  before(callback: (info: OpInfo) => void): Unhook;
  /**
   * Called when an operation settles; `error` is set if it failed. Every operation with `before` has an `after`. A hook that
   * throws here has no effect on other ranks.
   */
  after(callback: (info: OpInfo, error: unknown) => void): Unhook;
  /**
   * Called once when `abort` ends the communicator, with the reason. With real time there are three further cases. If `close`
   * aborts calls that exceed its time limit, the reason is the `CommTimeoutError`. If another process aborts the communicator
   * during a call of this rank, it is a `RemoteRankError` with rank and reason. `rebuild` of a job aborts what was not aborted
   * before. An error of the hook is thrown by `abort`, `close` or `rebuild`, after all cleanup and all other hooks. After an abort
   * by another process, it is a process warning.
   *
   * Other ends have no separate hook, and appear as errors of their calls. These are: closing a simulated world with open
   * calls, a throwing rank, a deadlock, an exceeded deadline, a signal, and a lost rank.
   */
  onAbort(callback: (reason: unknown) => void): Unhook;
}

/** Callbacks by kind, in the order of their addition. The lists are immutable: operations hold the list of their posting. */
interface Present {
  readonly before: readonly ((info: OpInfo) => void)[];
  readonly after: readonly ((info: OpInfo, error: unknown) => void)[];
  readonly onAbort: readonly ((reason: unknown) => void)[];
}

/** The callbacks of one communicator. All of a kind are called, even after one throws; then the first error is thrown. */
export class HookList implements Hooks {
  readonly #owner: Caller;
  #present: Present = { before: [], after: [], onAbort: [] };

  /** True if operations have no hooks; stored, because every call reads it. */
  idle = true;

  constructor(owner: Caller) {
    this.#owner = owner;
  }

  before(callback: (info: OpInfo) => void): Unhook {
    return this.#add("before", callback);
  }

  after(callback: (info: OpInfo, error: unknown) => void): Unhook {
    return this.#add("after", callback);
  }

  onAbort(callback: (reason: unknown) => void): Unhook {
    return this.#add("onAbort", callback);
  }

  notifyBefore(info: OpInfo): void {
    runAll(this.#present.before, info);
  }

  /** Taken when an operation is posted: calls the present callbacks at its end. */
  afterNotifier(): (info: OpInfo, error: unknown) => void {
    const { after } = this.#present;
    return (info, error) => runAll(after, info, error);
  }

  notifyAborted(reason: unknown): void {
    runAll(this.#present.onAbort, reason);
  }

  #add(kind: keyof Present, callback: (...given: never[]) => unknown): Unhook {
    const { rank, comm } = this.#owner;
    if (typeof callback !== "function") {
      throw new InvalidArgumentError(
        { headline: `hooks.${kind}: found ${textOf(callback)}, needs a function` },
        { ...this.#owner, field: "callback" },
      );
    }
    const place = `rank ${rank}: a hook of hooks.${kind} on "${comm}"`;
    // A function for each addition: one that is added twice is called twice, and removed once.
    const added = (...given: unknown[]): void =>
      warnOfRejection(callback(...(given as never[])), place);
    this.#set(kind, [...this.#present[kind], added]);
    return () =>
      this.#set(
        kind,
        this.#present[kind].filter((each) => each !== added),
      );
  }

  #set(kind: keyof Present, callbacks: Present[keyof Present]): void {
    this.#present = { ...this.#present, [kind]: callbacks };
    this.idle = this.#present.before.length === 0 && this.#present.after.length === 0;
  }
}
