/** The calls of a running callback of `group` or `capture`, which are checked and not posted yet; and operations of several calls. */
import type { CallOptions } from "../calls.ts";
import type { CollectiveName } from "../collectives/spec.ts";
import { InvalidArgumentError } from "../errors.ts";
import { type CommOp, completeOp, failOp, submitOp } from "../op.ts";
import type { CachedCall } from "./call-cache.ts";
import type { Poster } from "./poster.ts";
import type { Prepared, PreparedTransfer } from "./prepared.ts";

/** A checked call that was not posted yet. */
export interface Collected {
  readonly collective: CollectiveName;
  readonly prepared: Prepared<unknown> | PreparedTransfer<unknown>;
  readonly options: CallOptions | undefined;
  readonly op: CommOp;
  /** The same call as it was made before, where it was. */
  readonly cached?: CachedCall | undefined;
  /** Virtual time of the call; deadlines count from it. */
  readonly calledAtPs: number;
}

/** Virtual compute that a recording contains. */
export interface Work {
  readonly durationNs: number;
  readonly label: string | undefined;
}

/** The picoseconds that virtual compute takes. */
export function workPs({ durationNs }: Work): number {
  return Math.round(durationNs * 1000);
}

/** Calls that are posted together, or work between two such postings. */
export type Step = readonly Collected[] | Work;

/** True for virtual compute. */
export function isWork(step: Step): step is Work {
  return "durationNs" in step;
}

/** Gathers the calls of one callback. A group is one step; a recording has one for each call or group. */
export class Collecting {
  readonly #steps: Step[] = [];
  /** The one step of a group. */
  readonly #grouped: Collected[] = [];
  readonly #action: "group" | "capture";
  /** The caller: one rank's end of one communicator. */
  readonly owner: object;
  /** The callback in which this one runs. */
  readonly outer: Collecting | undefined;

  constructor(action: "group" | "capture", owner: object, outer: Collecting | undefined) {
    this.#action = action;
    this.owner = owner;
    this.outer = outer;
    if (action === "group") this.#steps.push(this.#grouped);
  }

  /** Takes calls that belong together: a single one, or those of an inner group. */
  add(calls: readonly Collected[]): void {
    if (this.#action === "capture") this.#steps.push(calls);
    else for (const call of calls) this.#grouped.push(call);
  }

  /** Takes virtual compute if a recording is under way; a group alone does not hold it back. */
  addWork(work: Work): boolean {
    if (this.#action === "group") return this.outer?.addWork(work) ?? false;
    this.#steps.push(work);
    return true;
  }

  get steps(): readonly Step[] {
    return this.#steps;
  }

  /** All calls, in the order in which they were made. */
  get calls(): readonly Collected[] {
    return this.#steps.flatMap((step) => (isWork(step) ? [] : step));
  }
}

/**
 * The innermost callback that runs: callbacks are synchronous, so that no program goes on beside them. Every call reads it,
 * which is why it is no function's to give; it is set here alone.
 */
export let innermost: Collecting | undefined;

/** Runs a callback and returns its calls; where it throws, they fail with its error. */
export function collectFrom(
  action: "group" | "capture",
  owner: object,
  facts: Facts,
  callback: () => unknown,
): Collecting {
  const outer = innermost;
  const collecting = new Collecting(action, owner, outer);
  innermost = collecting;
  try {
    assertSynchronous(action, callback(), facts);
  } catch (error) {
    for (const { op } of collecting.calls) failOp(op, error);
    throw error;
  } finally {
    innermost = outer;
  }
  return collecting;
}

/** The caller. */
interface Facts {
  readonly rank: number;
  readonly size: number;
  readonly comm: string;
}

/** Throws where a callback is another communicator's: the call would be made at once, and be no part of it. */
export function assertNotForeign(
  { owner: other }: Collecting,
  action: string,
  owner: object,
  facts: Facts,
): void {
  if (other === owner) return;
  throw new InvalidArgumentError(
    {
      headline: `${action}: called on "${facts.comm}" inside of another communicator's group or capture`,
      hint: "a group or recording is of one communicator: make the call before or behind it, or in one of its own",
    },
    { ...facts, collective: action, field: "calls" },
  );
}

/** Throws inside of a callback of its own: its calls are not posted yet, so that nothing could wait for them. */
export function assertClosable(owner: object, facts: Facts): void {
  if (innermost?.owner !== owner) return;
  throw new InvalidArgumentError(
    {
      headline: `close: called on "${facts.comm}" inside of its own group or capture, needs a place outside`,
      hint: "await the group or capture, then close",
    },
    { ...facts, collective: "close", field: "calls" },
  );
}

/** Throws when a callback has returned a promise: the calls behind its first `await` would come too late. */
function assertSynchronous(action: string, returned: unknown, facts: Facts): void {
  if (typeof returned !== "object" || returned === null || !("then" in returned)) return;
  // Its calls fail, and nothing else can observe them.
  Promise.resolve(returned).catch(() => undefined);
  throw new InvalidArgumentError(
    { headline: `${action}: the callback returned a promise, needs a synchronous function` },
    { ...facts, collective: action, field: "calls" },
  );
}

// Operations that are made of several.

/**
 * Submits `whole` when all its parts are submitted, and settles it when all are settled: with their first error, or
 * with `result`.
 */
export function completeTogether(whole: CommOp, parts: readonly CommOp[], result: unknown): void {
  let waiting = parts.length;
  let open = parts.length;
  let failure: { readonly error: unknown } | undefined;
  const settle = (): void => {
    if (failure !== undefined) failOp(whole, failure.error);
    else completeOp(whole, result);
  };
  if (open === 0) settle();
  for (const part of parts) {
    part.whenSubmitted(() => {
      waiting--;
      whole.submittedAtPs = Math.max(whole.submittedAtPs, part.submittedAtPs);
      if (waiting === 0) submitOp(whole);
    });
    // A hook of a part may make it fail.
    part.whenFinal((error) => {
      if (part.status === "failed") failure ??= { error };
      whole.finishedAtPs = Math.max(whole.finishedAtPs, part.finishedAtPs);
      open--;
      if (open === 0) settle();
    });
  }
}

/**
 * Refuses `whole`, then what is left of those of its parts that end with it. It comes first: it is one call that failed,
 * with hooks and a count of its own.
 */
export function refuseTogether(
  poster: Pick<Poster, "refuse">,
  whole: CommOp,
  parts: readonly CommOp[],
  error: unknown,
): void {
  poster.refuse(whole, error);
  for (const part of parts) failOp(part, error);
}
