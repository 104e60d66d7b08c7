/** Collects the checked, unposted calls of a callback of `group`, `capture` or `prepare`; settles operations of several calls. */
import { type Caller, InvalidArgumentError } from "../errors.ts";
import { completeOp, failOp, type Operation, submitOp } from "../op.ts";
import type { CollectedCall } from "./call-cache.ts";

/** Virtual compute that a recording contains. */
export interface VirtualWork {
  readonly durationNs: number;
  readonly label: string | undefined;
}

/** True for a call of sends and receives. */
export function isMessage({ prepared }: CollectedCall): boolean {
  return "transfers" in prepared;
}

/** A method whose callback is collected. */
export type CallbackAction = "group" | "capture" | "prepare";

/** Calls posted together, or compute between two postings. */
export type Step = readonly CollectedCall[] | VirtualWork;

/** True for virtual compute. */
export function isWork(step: Step): step is VirtualWork {
  return "durationNs" in step;
}

/** Collects the calls of one callback. Compute in a group alone is not collected. */
export class CallCollector {
  readonly steps: Step[] = [];
  readonly action: CallbackAction;
  /** The calling rank of a communicator. */
  readonly owner: object;
  /** The collector of the enclosing callback. */
  readonly outer: CallCollector | undefined;

  constructor(action: CallbackAction, owner: object, outer: CallCollector | undefined) {
    this.action = action;
    this.owner = owner;
    this.outer = outer;
  }

  /** Adds virtual compute to the enclosing recording, if any. */
  addWork(work: VirtualWork): boolean {
    if (this.action !== "capture") return this.outer?.addWork(work) ?? false;
    this.steps.push(work);
    return true;
  }

  /** All calls, in program order. */
  get calls(): readonly CollectedCall[] {
    const calls: CollectedCall[] = [];
    for (const step of this.steps) if (!isWork(step)) for (const call of step) calls.push(call);
    return calls;
  }
}

/** The error of a collected call that does not run. */
export function neverRunsError(facts: Caller, what: string, instead: string): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: `${what} call does not run, so it cannot be awaited`,
      hint: `await ${instead}`,
    },
    facts,
  );
}

/**
 * The collector of the innermost running callback. Callbacks are synchronous, so that one variable serves all programs. It is
 * exported directly because every call reads it; only this file sets it.
 */
export let innermost: CallCollector | undefined;

/** Runs a callback and returns its calls; if it throws, they fail with its error. */
export function collectCalls(
  action: CallbackAction,
  owner: object,
  facts: Caller,
  callback: () => unknown,
): CallCollector {
  const outer = innermost;
  const collector = new CallCollector(action, owner, outer);
  innermost = collector;
  try {
    assertSynchronous(action, callback(), facts);
  } catch (error) {
    for (const { op } of collector.calls) failOp(op, error);
    throw error;
  } finally {
    innermost = outer;
  }
  return collector;
}

/** Throws if a callback returns a promise: calls after its first `await` would be too late. */
function assertSynchronous(action: string, returned: unknown, facts: Caller): void {
  if (typeof returned !== "object" || returned === null || !("then" in returned)) return;
  // The calls of the callback fail and report the error; this rejection would be unhandled.
  Promise.resolve(returned).catch(() => undefined);
  throw new InvalidArgumentError(
    { headline: `${action}: the callback returned a promise, needs a synchronous function` },
    { ...facts, collective: action, field: "calls" },
  );
}

// Operations of several calls.

/** A part of an operation. */
interface Part {
  readonly op: Operation;
}

/**
 * Makes operations the parts of `whole`. It is submitted once all of them are, and settles once all are settled: with their first
 * error, or with `result`.
 */
export function completeTogether(whole: Operation, parts: readonly Part[], result: unknown): void {
  let waiting = parts.length;
  let open = parts.length;
  let failure: { readonly error: unknown } | undefined;
  const settle = (): void => {
    if (failure !== undefined) failOp(whole, failure.error);
    else completeOp(whole, result);
  };
  if (open === 0) settle();
  // One function for all parts: a group has thousands of them.
  const submitted = (part: Operation): void => {
    waiting--;
    if (part.submittedAtPs > whole.submittedAtPs) whole.submittedAtPs = part.submittedAtPs;
    if (waiting === 0) submitOp(whole);
  };
  const final = (error: unknown, part: Operation): void => {
    // A hook of a part may make it fail.
    if (part.status === "failed") failure ??= { error };
    if (part.finishedAtPs > whole.finishedAtPs) whole.finishedAtPs = part.finishedAtPs;
    open--;
    if (open === 0) settle();
  };
  for (let at = 0; at < parts.length; at++)
    (parts[at] as Part).op.partWith(whole, submitted, final);
}

/** Refuses `whole`, then its unsettled parts. `whole` comes first: it is a failed call with its own hooks and count. */
export function refuseTogether(
  poster: { refuse(op: Operation, error: unknown): void },
  whole: Operation,
  parts: readonly Part[],
  error: unknown,
): void {
  poster.refuse(whole, error);
  for (const { op } of parts) failOp(op, error);
}
