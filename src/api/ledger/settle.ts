/** Settles dispatched calls: every rank gets its result or its error, after pending awaits have subscribed. */
import type { CallSet, CommInfo, Completion, Session } from "../backend.ts";
import { completeOp, submitOp } from "../op.ts";
import type { Windows } from "./compare.ts";
import type { ComingTogether } from "./dispatch.ts";
import { errorByCall } from "./failures.ts";
import type { Agreement } from "./matched-call.ts";
import type { Posting } from "./posting.ts";
import type { QueuedCall } from "./submission.ts";

/** The same for all calls of one communicator. */
export interface ServeHost {
  readonly session: Session;
  readonly comm: CommInfo;
  readonly windows: Windows;
  readonly coming: ComingTogether;
  /** Prepares a complete set: allocates what could not be known before. Throws when it cannot be served. */
  prepare(set: CallSet): void;
  /** Serves a call that changes communicators instead of data; false when it is none. */
  organise(set: CallSet): void | Promise<void> | false;
  fail(posting: Posting, error: unknown): void;
  /**
   * Runs `settle` once every rank that was about to wait does so: only then does the order of waking count. `work` is 1 for
   * each rank of a small call.
   */
  later(settle: () => void, work: number): void;
  /** Has calls handed to a session that queues them, and settles them when it is done. */
  queue(postings: readonly Posting[], hand: (waiting: Completion) => void): void;
  /** The same for a call that the session has worked out before. */
  queueAgain(call: QueuedCall, known: Agreement, number: number): void;
  /** A rank has given up a call that those of other processes go on with: here the communicator is over. */
  abandon(posting: Posting): void;
  /** A call took longer than its deadline. */
  overdue(posting: Posting, missing: readonly number[]): void;
}

/** The rest of a dispatch when a session has queued the calls: the ledger goes on while they are at work. */
export const queued = Symbol("queued");

/** The rest of a dispatch: nothing, a wait, or queued calls. */
export type Work = undefined | typeof queued | Promise<unknown>;

/** The session has taken these calls and messages. */
export function submitted(
  calls: readonly (readonly Posting[])[],
  done: void | Promise<void>,
): undefined | Promise<void> {
  for (const postings of calls) {
    const atPs = lastComing(postings);
    for (const { op } of postings) {
      op.submittedAtPs = atPs;
      submitOp(op);
    }
  }
  return done instanceof Promise ? done : undefined;
}

/** Virtual time at which the last rank made a call; before that, no rank can know of it. */
export function lastComing(postings: readonly Posting[]): number {
  let last = 0;
  for (const { call } of postings) last = Math.max(last, call.postedAtPs);
  return last;
}

/** Runs `work`, then `settled`; what goes wrong becomes the error of every posting. */
export function attempt(
  host: ServeHost,
  postings: readonly Posting[],
  work: () => Work,
  settled: () => void,
): void | Promise<void> {
  const failed = (error: unknown): void => failServed(host, postings, error);
  const finish = (left: unknown): void => {
    if (left !== queued) settled();
  };
  try {
    const left = work();
    if (left instanceof Promise) return left.then(finish, failed);
    finish(left);
  } catch (error) {
    failed(error);
  }
}

/** Gives every rank of these calls and messages its result, in this order, unless its deadline passed before that. */
export function wake(host: ServeHost, calls: readonly (readonly Posting[])[]): void {
  const inTime = calls.some((call) => call.some(isLate)) ? refuseLate(host, calls) : calls;
  host.later(() => {
    for (const postings of inTime) {
      for (const { op, call, prepared } of postings) {
        op.finishedAtPs = call.finishedAtPs;
        completeOp(op, prepared.resultOf(call));
      }
    }
  }, workOf(inTime));
}

/** The bytes of a call that take as long to move as one rank takes to be woken. */
const bytesOfWork = 2048;

function workOf(calls: readonly (readonly Posting[])[]): number {
  let work = 0;
  for (const postings of calls) {
    const { send, recv } = postings[0]?.call ?? {};
    const bytes = Math.max(send?.byteLength ?? 0, recv?.byteLength ?? 0);
    work += postings.length * (1 + bytes / bytesOfWork);
  }
  return work;
}

/** Fails the calls with deadlines that have passed; gives the others. */
function refuseLate(
  host: ServeHost,
  calls: readonly (readonly Posting[])[],
): readonly (readonly Posting[])[] {
  const late = calls.flatMap((call) => call.filter(isLate).map((posting) => ({ posting, call })));
  // The deadline that passes first aborts the communicator, in any order of resumption.
  late.sort(
    ({ posting: a }, { posting: b }) => deadlineOf(a) - deadlineOf(b) || a.op.rank - b.op.rank,
  );
  for (const { posting, call } of late) {
    host.overdue(posting, latecomers(call, deadlineOf(posting)));
  }
  return calls.map((call) => call.filter((posting) => !isLate(posting)));
}

function deadlineOf({ deadlinePs = Infinity }: Posting): number {
  return deadlinePs;
}

function isLate({ call, deadlinePs }: Posting): boolean {
  return deadlinePs !== undefined && call.finishedAtPs > deadlinePs;
}

/** Fails what went wrong while it was served. Where ranks of other processes may be at it, the communicator is over here. */
export function failServed(host: ServeHost, postings: readonly Posting[], error: unknown): void {
  failAll(host, postings, errorByCall(error, host));
  const [first] = postings;
  const { local, ranks } = host.comm;
  const isAlone = local.length === ranks.length;
  if (first !== undefined && !isAlone) host.later(() => abandon(host, first), 1);
}

/** Fails every rank of a call, once those that were about to await it do. */
export function failAll(
  host: ServeHost,
  postings: readonly Posting[],
  errorOf: (posting: Posting) => unknown,
): void {
  const atPs = lastComing(postings);
  host.later(() => {
    for (const posting of postings) failAt(host, posting, errorOf(posting), atPs);
  }, postings.length);
}

export function failAt(host: ServeHost, posting: Posting, error: unknown, atPs: number): void {
  if (posting.op.pending) posting.op.finishedAtPs = atPs;
  host.fail(posting, error);
}

/** Ranks that made a call only after a deadline. */
function latecomers(postings: readonly Posting[], deadlinePs: number): number[] {
  return postings.flatMap(({ call }) => (call.postedAtPs > deadlinePs ? [call.rank] : []));
}

/** Whatever its session has of the communicator goes too. */
export function abandon(host: ServeHost, posting: Posting): void {
  host.abandon(posting);
  host.session.abort?.(host.comm, posting.op.error);
}

export function isPending({ op }: Posting): boolean {
  return op.pending;
}
