/** Settles dispatched calls: every rank gets its result or its error, after pending awaits have subscribed. */
import type {
  CallSet,
  CommInfo,
  Completion,
  JobSession,
  QueueingSession,
  Session,
} from "../backend.ts";
import { completeOp, submitOp } from "../op.ts";
import type { SymmetricWindows } from "./compare.ts";
import type { BarrierWait } from "./dispatch.ts";
import { errorsByCall } from "./failures.ts";
import type { Posting } from "./posting.ts";
import type { Submission } from "./submission.ts";

/** The same for all calls of one communicator. */
export interface DispatchHost {
  readonly session: Session;
  /** The session, where it queues work. */
  readonly queueing: QueueingSession | undefined;
  /** The session, where it is one of several processes. */
  readonly job: JobSession | undefined;
  readonly comm: CommInfo;
  readonly windows: SymmetricWindows;
  readonly barrier: BarrierWait;
  /** Makes the communicators of a complete split. */
  split(set: CallSet): void | Promise<void>;
  fail(posting: Posting, error: unknown): void;
  /**
   * Runs `settle` once every rank that was about to wait does so: only then does the order of waking count. `work` is 1 for
   * each rank of a small call.
   */
  settleLater(settle: () => void, work: number): void;
  /** Queues a submission, which `submit` passes to the session; one for which it throws was not queued. */
  enqueue(call: Submission, submit: (completion: Completion) => void): void;
  /** A rank has given up a call that those of other processes go on with: here the communicator is over. */
  abandon(posting: Posting): void;
  /** A call took longer than its deadline. */
  timeOut(posting: Posting, missing: readonly number[]): void;
}

/** The result of a dispatch when the session has queued the calls: the ledger dispatches others meanwhile. */
export const queued = Symbol("queued");

/** The rest of a dispatch: nothing, a wait, or queued calls. */
export type DispatchResult = undefined | typeof queued | Promise<unknown>;

/** The session has taken these calls and messages. */
export function markSubmitted(
  calls: readonly (readonly Posting[])[],
  done: void | Promise<void>,
): undefined | Promise<void> {
  for (const postings of calls) {
    const atPs = lastPostedAtPs(postings);
    for (const { op } of postings) {
      op.submittedAtPs = atPs;
      submitOp(op);
    }
  }
  return done instanceof Promise ? done : undefined;
}

/** Virtual time at which the last rank made a call; before that, no rank can know of it. */
export function lastPostedAtPs(postings: readonly Posting[]): number {
  let last = 0;
  for (const { call } of postings) last = Math.max(last, call.postedAtPs);
  return last;
}

/** Runs `work`, then `settled`; what goes wrong becomes the error of every posting. */
export function attempt(
  host: DispatchHost,
  postings: readonly Posting[],
  work: () => DispatchResult,
  settled: () => void,
): void | Promise<void> {
  const failed = (error: unknown): void => failDispatched(host, postings, error);
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
export function settle(host: DispatchHost, calls: readonly (readonly Posting[])[]): void {
  const inTime = calls.some((call) => call.some(isLate)) ? failLate(host, calls) : calls;
  host.settleLater(() => {
    for (const postings of inTime) {
      for (const { op, call, prepared } of postings) {
        op.finishedAtPs = call.finishedAtPs;
        completeOp(op, prepared.toResult(call));
      }
    }
  }, costOf(inTime));
}

/** The bytes of a call that take as long to move as one rank takes to be woken. */
const bytesOfWork = 2048;

function costOf(calls: readonly (readonly Posting[])[]): number {
  let work = 0;
  for (const postings of calls) {
    const { send, recv } = postings[0]?.call ?? {};
    const bytes = Math.max(send?.byteLength ?? 0, recv?.byteLength ?? 0);
    work += postings.length * (1 + bytes / bytesOfWork);
  }
  return work;
}

/** Fails the calls with deadlines that have passed; gives the others. */
function failLate(
  host: DispatchHost,
  calls: readonly (readonly Posting[])[],
): readonly (readonly Posting[])[] {
  const late = calls.flatMap((call) => call.filter(isLate).map((posting) => ({ posting, call })));
  // The deadline that passes first aborts the communicator, in any order of resumption.
  late.sort(
    ({ posting: a }, { posting: b }) => deadlineOf(a) - deadlineOf(b) || a.op.rank - b.op.rank,
  );
  for (const { posting, call } of late) {
    host.timeOut(posting, lateRanks(call, deadlineOf(posting)));
  }
  return calls.map((call) => call.filter((posting) => !isLate(posting)));
}

function deadlineOf({ deadlinePs = Infinity }: Posting): number {
  return deadlinePs;
}

function isLate({ call, deadlinePs }: Posting): boolean {
  return deadlinePs !== undefined && call.finishedAtPs > deadlinePs;
}

/** Fails calls whose dispatch threw. Where ranks of other processes may be in the call, the communicator ends here. */
export function failDispatched(
  host: DispatchHost,
  postings: readonly Posting[],
  error: unknown,
): void {
  failAll(host, postings, errorsByCall(error, host));
  const [first] = postings;
  const { local, ranks } = host.comm;
  const isAlone = local.length === ranks.length;
  if (first !== undefined && !isAlone) host.settleLater(() => abandon(host, first), 1);
}

/** Fails every rank of a call, once those that were about to await it do. */
export function failAll(
  host: DispatchHost,
  postings: readonly Posting[],
  errorOf: (posting: Posting) => unknown,
): void {
  const atPs = lastPostedAtPs(postings);
  host.settleLater(() => {
    for (const posting of postings) failAt(host, posting, errorOf(posting), atPs);
  }, postings.length);
}

export function failAt(host: DispatchHost, posting: Posting, error: unknown, atPs: number): void {
  if (posting.op.pending) posting.op.finishedAtPs = atPs;
  host.fail(posting, error);
}

/** Ranks that made a call only after a deadline. */
function lateRanks(postings: readonly Posting[], deadlinePs: number): number[] {
  return postings.flatMap(({ call }) => (call.postedAtPs > deadlinePs ? [call.rank] : []));
}

/** Whatever its session has of the communicator goes too. */
export function abandon(host: DispatchHost, posting: Posting): void {
  host.abandon(posting);
  host.session.abort(host.comm, posting.op.error);
}

export function isPending({ op }: Posting): boolean {
  return op.pending;
}
