/**
 * Every error the library raises on purpose. One base class, a stable `code`, and the facts as fields.
 *
 * A `CommError` has the ranks concerned (`rank`, `ranks`), the action (`collective`, `call`,
 * `comm`), the field that differs, and the next step (`hint`). Mistakes of the library are `invariant` failures instead,
 * which are not meant to be caught.
 */
import { callText, type ErrorText, errorMessage } from "./error-text.ts";

/** Stable names of the errors; part of the API. */
export type CommErrorCode =
  | "ERR_COMM_ARG"
  | "ERR_COMM_UNSUPPORTED"
  | "ERR_COMM_BACKEND"
  | "ERR_COMM_RENDEZVOUS"
  | "ERR_COMM_MISMATCH"
  | "ERR_COMM_DEADLOCK"
  | "ERR_COMM_ORDER"
  | "ERR_COMM_TIMEOUT"
  | "ERR_COMM_REMOTE"
  | "ERR_COMM_LOST"
  | "ERR_COMM_ABORTED"
  | "ERR_COMM_CLOSED"
  | "ERR_COMM_FAULT"
  | "ERR_COMM_NCCL"
  | "ERR_COMM_CUDA"
  | "ERR_COMM_UNUSED"
  | "ERR_COMM_NONFINITE"
  | "ERR_COMM_CHECKPOINT"
  | "ERR_COMM_WEBGPU"
  | "ERR_COMM_WORLD";

/** The rank of a communicator that makes a call. */
export interface Caller {
  readonly rank: number;
  readonly size: number;
  readonly comm: string;
}

/** Facts an error carries beside its text. */
export interface CommErrorFacts {
  /** The rank that sees this error. */
  readonly rank?: number | undefined;
  /** Size of the communicator. */
  readonly size?: number | undefined;
  /** Name of the communicator. */
  readonly comm?: string | undefined;
  /** The action, such as `allReduce`. */
  readonly collective?: string | undefined;
  /**
   * Number of the call on its communicator, counted from 0 on every rank, separately for collective calls and messages. -1 for
   * a call that was never posted.
   */
  readonly call?: number | undefined;
  /** The device of the rank that sees it, such as `cuda:0`. */
  readonly device?: string | undefined;
  /** The ranks to look at: those that differ, threw or are missing. */
  readonly ranks?: readonly number[] | undefined;
  /** The argument or signature field at fault. */
  readonly field?: string | undefined;
  readonly cause?: unknown;
}

/** Gives an error what its message says already: it is not printed once more with it. */
function hide(error: CommError, details: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(details)) {
    Object.defineProperty(error, name, { value, enumerable: false });
  }
}

/** Base of every error raised on purpose. */
export abstract class CommError extends Error {
  /** The name of the class as text: bundlers shorten names in the code. */
  static override readonly name: string = "CommError";
  abstract readonly code: CommErrorCode;
  // Those that an error lacks are undefined on the prototype, so that nothing empty is printed with it.
  declare readonly rank: number | undefined;
  declare readonly size: number | undefined;
  declare readonly comm: string | undefined;
  declare readonly collective: string | undefined;
  declare readonly call: number | undefined;
  declare readonly device: string | undefined;
  declare readonly ranks: readonly number[];
  declare readonly field: string | undefined;
  declare readonly hint: string | undefined;

  static {
    for (const name of ["rank", "size", "comm", "collective", "call", "device", "field"]) {
      Object.defineProperty(CommError.prototype, name, { value: undefined, writable: true });
    }
  }

  /** A string is the headline of a text without table and hint. */
  constructor(given: ErrorText | string = "", facts: CommErrorFacts = {}) {
    const isText = typeof given === "object" && given !== null;
    const text = isText ? given : { headline: String(given) };
    super(errorMessage(text), facts.cause === undefined ? undefined : { cause: facts.cause });
    const { rank, size, comm, collective, call, device, ranks = [], field } = facts;
    // Plain assignments: a batch of calls ends with an error for each, and a property that is defined takes ten times as long.
    if (rank !== undefined) this.rank = rank;
    if (size !== undefined) this.size = size;
    if (comm !== undefined) this.comm = comm;
    if (collective !== undefined) this.collective = collective;
    if (call !== undefined) this.call = call;
    if (device !== undefined) this.device = device;
    if (ranks.length > 0) this.ranks = ranks;
    else hide(this, { ranks });
    if (field !== undefined) this.field = field;
    hide(this, { hint: text.hint });
  }

  override get name(): string {
    return this.constructor.name;
  }

  /**
   * The error for the rank of these facts. An error thrown outside of a call becomes the `cause` of a new error of that rank.
   */
  seenBy(_facts: CommErrorFacts): CommError {
    return this;
  }

  /** The error as plain data, for logs, test runners and other processes: its facts, its stack and the chain of its causes. */
  toJSON(): Record<string, unknown> {
    const { name, code, message, stack } = this;
    const facts: Record<string, unknown> = {};
    for (const each of Object.getOwnPropertyNames(this))
      if (!engineNames.includes(each)) facts[each] = Reflect.get(this, each);
    // A program may have added properties that have no JSON.
    for (const [each, value] of Object.entries(this)) facts[each] = plainData(value);
    const all = { name, code, message, ...facts, stack, cause: plainData(this.cause) };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  }
}

/** Properties that the engine gives to every error. */
const engineNames = Object.getOwnPropertyNames(new Error("", { cause: undefined }));

/** An argument is wrong on this rank; nothing was posted, sent or written. */
export class InvalidArgumentError extends CommError {
  static override readonly name: string = "InvalidArgumentError";
  readonly code = "ERR_COMM_ARG";
}

/** The call is legal, but this backend, dtype, operator or version cannot do it. */
export class UnsupportedError extends CommError {
  static override readonly name: string = "UnsupportedError";
  readonly code = "ERR_COMM_UNSUPPORTED";
}

/** A backend cannot be used here, with a table of attempts and reasons; or a part of it failed during a call. */
export class BackendUnavailableError extends CommError {
  static override readonly name: string = "BackendUnavailableError";
  readonly code = "ERR_COMM_BACKEND";
}

/** The processes of a job did not all join, or lost their store. */
export class RendezvousError extends CommError {
  static override readonly name: string = "RendezvousError";
  readonly code = "ERR_COMM_RENDEZVOUS";
  /** Where they meet: a host and port, or a file. */
  readonly address: string;
  /** The ranks that had joined; empty where this process has no news of them. */
  readonly joined: readonly number[];
  /** The ranks that had not; empty where this process has no news of them. */
  readonly missing: readonly number[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & {
      readonly address?: string | undefined;
      readonly joined?: readonly number[] | undefined;
      readonly missing?: readonly number[] | undefined;
    } = {},
  ) {
    super(text, facts);
    this.address = facts.address ?? "";
    this.joined = facts.joined ?? [];
    this.missing = facts.missing ?? [];
  }
}

/** Ranks made different calls where the same was needed; nothing was written on any of them. */
export class CollectiveMismatchError extends CommError {
  static override readonly name: string = "CollectiveMismatchError";
  readonly code = "ERR_COMM_MISMATCH";
  /** The value of `field` on each rank of the communicator, by rank. */
  declare readonly values: readonly string[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly values?: readonly string[] | undefined } = {},
  ) {
    super(text, facts);
    hide(this, { values: facts.values ?? [] });
  }
}

/** The state of one rank of a deadlocked world. */
export interface RankWait {
  /** World rank. */
  readonly rank: number;
  /** `runs`: it awaits none of its calls, but may wait for something else. */
  readonly state: "waits" | "runs" | "finished";
  /** For a waiting rank: communicator, collective and call number it waits in. */
  readonly comm?: string | undefined;
  readonly collective?: string | undefined;
  readonly call?: number | undefined;
  /** World rank that owns the communicator it called, where that is not its own. */
  readonly owner?: number | undefined;
  /** World ranks that have not made the matching call, or have made it behind an earlier one. */
  readonly missing: readonly number[];
  /** World ranks that have made it behind an earlier call; left out where there are none. */
  readonly behind?: readonly number[] | undefined;
  /** Where the rank's program made the call, as `file:line:column`; with `callSites`. */
  readonly place?: string | undefined;
}

/**
 * Every unfinished rank waits for another one: nothing can ever wake them. `rank`, `ranks` and `size` are those of the world, also
 * where `comm` is a communicator of a split.
 */
export class DeadlockError extends CommError {
  static override readonly name: string = "DeadlockError";
  readonly code = "ERR_COMM_DEADLOCK";
  /** The wait of each rank, by rank. */
  declare readonly waits: readonly RankWait[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly waits?: readonly RankWait[] | undefined } = {},
  ) {
    super(text, facts);
    hide(this, { waits: facts.waits ?? [] });
  }
}

/** A call in the order in which a rank made several. */
export interface OrderedCall {
  /** Name of its communicator. */
  readonly comm: string;
  readonly collective: string;
  readonly call: number;
  /** Where the rank's program made it, as `file:line:column`; with `callSites`. */
  readonly place?: string | undefined;
  /** The rank has not made it; it would come behind the others. */
  readonly isMissing?: true;
}

/** The order in which one rank made calls of several communicators. */
export interface CallOrder {
  /** World rank. */
  readonly rank: number;
  /** The first call first. */
  readonly calls: readonly OrderedCall[];
}

/**
 * Ranks made calls of several communicators in different orders, so that they would wait for each other for ever. Nothing was
 * written; the communicators are over. `ranks` are the world ranks with another order than most,
 * or all with a part in it where no order is that of most.
 */
export class CallOrderError extends CommError {
  static override readonly name: string = "CallOrderError";
  readonly code = "ERR_COMM_ORDER";
  /** The order of each rank that has made several of the calls, by world rank. */
  declare readonly orders: readonly CallOrder[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly orders?: readonly CallOrder[] | undefined } = {},
  ) {
    super(text, facts);
    hide(this, { orders: facts.orders ?? [] });
  }
}

/**
 * A deadline passed, or a world with `stall: "fail"` stalled. `ranks` are the missing ranks, or the peer of a message; those of the
 * world for a stall, as of a `DeadlockError`.
 */
export class CommTimeoutError extends CommError {
  static override readonly name: string = "CommTimeoutError";
  readonly code = "ERR_COMM_TIMEOUT";
}

/** Another rank's program threw, or its process will not come: the `cause` is its error, or says why. */
export class RemoteRankError extends CommError {
  static override readonly name: string = "RemoteRankError";
  readonly code = "ERR_COMM_REMOTE";

  override seenBy(facts: CommErrorFacts): CommError {
    return this.rank === undefined ? new RemoteRankError(...seenAs(this, facts)) : this;
  }
}

/** The process of another rank is gone; `ranks` are the lost ones. The survivors can rebuild. */
export class RankLostError extends CommError {
  static override readonly name: string = "RankLostError";
  readonly code = "ERR_COMM_LOST";

  override seenBy(facts: CommErrorFacts): CommError {
    return this.rank === undefined ? new RankLostError(...seenAs(this, facts)) : this;
  }
}

/** The communicator was aborted; the reason is the `cause`. */
export class CommAbortedError extends CommError {
  static override readonly name: string = "CommAbortedError";
  readonly code = "ERR_COMM_ABORTED";

  override seenBy(facts: CommErrorFacts): CommError {
    return this.rank === undefined ? new CommAbortedError(...seenAs(this, facts)) : this;
  }
}

/** The communicator, world or buffer was closed or disposed before this use. */
export class CommClosedError extends CommError {
  static override readonly name: string = "CommClosedError";
  readonly code = "ERR_COMM_CLOSED";
}

/** A fault that the simulation injects on request. Its `call` counts as `failAt` does: over all communicators of the rank. */
export class InjectedFaultError extends CommError {
  static override readonly name: string = "InjectedFaultError";
  readonly code = "ERR_COMM_FAULT";
}

/** One rank's failure inside `world.run`. */
export interface RankFailure {
  readonly rank: number;
  readonly error: unknown;
}

/** `world.run` failed on some ranks; `failures` lists them, earliest first, and `cause` is the first one. */
export class WorldError extends CommError {
  static override readonly name: string = "WorldError";
  readonly code = "ERR_COMM_WORLD";
  declare readonly failures: readonly RankFailure[];

  constructor(
    text?: ErrorText | string,
    facts: CommErrorFacts & { readonly failures?: readonly RankFailure[] | undefined } = {},
  ) {
    super(text, facts);
    hide(this, { failures: facts.failures ?? [] });
  }

  override toJSON(): Record<string, unknown> {
    return { ...super.toJSON(), failures: plainFailures(this.failures) };
  }
}

/** Failures as plain data. One with the text of an earlier one is short: thousands of ranks may fail with the same tables. */
function plainFailures(failures: readonly RankFailure[]): unknown[] {
  const texts = new Set<string>();
  return failures.map(({ rank, error }) => {
    if (!(error instanceof CommError) || !texts.has(error.message)) {
      if (error instanceof CommError) texts.add(error.message);
      return { rank, error: plainData(error) };
    }
    const { name, code, message } = error;
    return { rank, error: { name, code, message: message.split("\n", 1)[0] } };
  });
}

/** Values with plain data in the making, by which a chain of causes that leads back to itself ends. */
const underWay = new Set<unknown>();

/** A thrown value as plain data that `JSON.stringify` accepts: errors with stack and causes, other values as they are or as text. */
function plainData(value: unknown): unknown {
  if (underWay.has(value)) return "[circular]";
  underWay.add(value);
  try {
    if (value instanceof CommError) return value.toJSON();
    if (value instanceof Error) {
      const { name, message, stack, cause } = value;
      return { name, message, stack, cause: plainData(cause) };
    }
    if (typeof value === "bigint") return String(value);
    const hasJson = value === undefined || JSON.stringify(value) !== undefined;
    return hasJson ? value : String(value);
  } catch {
    return `${typeof value} that has no JSON`;
  } finally {
    underWay.delete(value);
  }
}

/** The text and the facts of an error for a call that fails with it. */
function seenAs(error: CommError, call: CommErrorFacts): [text: ErrorText, facts: CommErrorFacts] {
  const { message, hint, ranks, cause } = error;
  const [headline = ""] = message.split("\n");
  return [
    { headline: callText(call) + headline, hint },
    { ...call, ranks, cause },
  ];
}
