/**
 * Dispatches complete calls: compares them, submits them to the session, and gives every rank its result or its error.
 *
 * A set that differs between ranks never reaches the session.
 */
import type {
  CallSet,
  Completion,
  PeerBarrier,
  RankCall,
  RecordedWork,
  Session,
  Work,
} from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { completeOp, type Operation, submitOp, submitOpAt } from "../op.ts";
import {
  assertLive,
  assertNoAliasing,
  compareAcrossProcesses,
  type Mismatch,
  mismatchErrors,
  mismatchOf,
  releasedUnderWay,
  writtenError,
} from "./checks.ts";
import { type CommState, PostedSubmission } from "./comm-state.ts";
import { missingCause } from "./deadlines.ts";
import { andThen, exchangeCounts, provideReceiveBuffers, split } from "./exchanges.ts";
import { errorsByCall, PerRankError } from "./failures.ts";
import {
  deadlineOf,
  hasReceiveCounts,
  hasReleasedBuffer,
  MatchedCall,
  type Posting,
  type Prepared,
  repeatedPosting,
  resultOf,
} from "./posting.ts";
import { PendingCollective } from "./queues.ts";

/** Dispatches a complete collective call. A promise: the session still executes it. */
export function dispatchCollective(
  state: CommState,
  pending: PendingCollective,
): void | Promise<void> {
  const postings = pending.posted;
  const cancelled = firstSettled(postings);
  if (cancelled !== undefined) {
    // Ranks of other processes are not notified, and go on with the call.
    if (postings.length < pending.postings.length) return abandon(state, cancelled);
    const ranks = postings.flatMap(({ op }) => (op.pending ? [] : [op.rank]));
    failAll(state, postings, ({ op }) => cancelError(pending, ranks, op.rank));
    return;
  }
  const compared =
    state.job && compareAcrossProcesses(state.comm, state.windows, state.job, pending);
  if (compared === undefined) return dispatchCompared(state, pending, postings);
  const serve = (mismatch: Mismatch | undefined): void | Promise<void> => {
    if (mismatch !== undefined) return failMismatch(state, pending, mismatch);
    const late = firstSettled(postings);
    return late === undefined ? dispatchCompared(state, pending, postings) : abandon(state, late);
  };
  return compared.then(serve, (error) => {
    state.failures.failEach(postings, errorsByCall(error, state));
    for (const posting of postings) abandon(state, posting);
  });
}

/** Dispatches a call that is equal in all processes, as far as calls are compared. */
function dispatchCompared(
  state: CommState,
  pending: PendingCollective,
  postings: readonly Posting[],
): void | Promise<void> {
  const { comm, number } = pending;
  const known = MatchedCall.lookup(postings);
  const calls = postings.map(({ call }) => call);
  const mismatch = known === undefined ? mismatchOf(pending, calls, state.windows) : undefined;
  if (mismatch !== undefined) return failMismatch(state, pending, mismatch);
  const cache = known ?? MatchedCall.store(postings, calls);
  // Only a disposal of its buffers can invalidate it.
  const isSame =
    known?.isFixed === true && state.session.observer === undefined && known.buffersLive();
  const { repeat } = cache;
  if (isSame && repeat !== undefined && !state.holdsWork) {
    const submit = (completion: Completion): void => repeat.submit(number, completion);
    return attempt(state, [postings], () => submitPostings(state, postings, submit));
  }
  const set: CallSet = {
    comm,
    number,
    collective: calls[0]?.collective ?? "barrier",
    calls,
    cache,
  };
  const isChecked = isSame && state.job === undefined;
  return attempt(
    state,
    [postings],
    () => (isChecked ? submitWork(state, set, [postings]) : runAfterBarrier(state, set, postings)),
    () => {
      const order = state.session.scheduler.wakeOrder(set);
      settle(state, [order.map((rank) => postings[rank] as Posting)]);
    },
  );
}

/** The repeated calls of all ranks with one number, by rank. */
export interface CompleteRow {
  readonly number: number;
  readonly ops: readonly Operation[];
  /** Virtual times of the calls. */
  readonly postedAtPs: readonly number[];
}

/** Dispatches a call that was dispatched before, and whose buffers live, where time is virtual. */
export function dispatchRepeated(
  state: CommState,
  matched: MatchedCall,
  { number, ops, postedAtPs }: CompleteRow,
): void {
  const { comm, queues } = state;
  const calls = matched.repeatedAt(postedAtPs);
  const { collective } = calls[0] as RankCall;
  const set: CallSet = { comm, number, collective, calls, cache: matched };
  const postings = (): Posting[] =>
    ops.map((op, at) => {
      const made = matched.prepared[at] as Prepared<unknown>;
      return repeatedPosting(made, op, undefined, postedAtPs[at]);
    });
  const fail = (error: unknown): void => {
    failDispatched(state, postings(), error);
  };
  state.world.monitor.noteActivity();
  let done: void | Promise<void>;
  try {
    done = state.session.execute(set);
  } catch (error) {
    fail(error);
    return;
  }
  let submittedPs = 0;
  for (let at = 0; at < ops.length; at++)
    submittedPs = Math.max(submittedPs, postedAtPs[at] as number);
  for (let at = 0; at < ops.length; at++) {
    // The next repetition may change the call before this one settles.
    const { finishedAtPs } = calls[at] as RankCall;
    submitOpAt(ops[at] as Operation, submittedPs, finishedAtPs);
  }
  if (done instanceof Promise) {
    const served = done.then(() => settleRepeated(state, set, matched.prepared, ops), fail);
    const pending = new PendingCollective(number, comm);
    pending.isDispatched = true;
    for (const posting of postings()) {
      pending.add(posting);
      queues.push(posting.op.rank, pending);
    }
    state.track(served.then(() => queues.shiftAll(pending)));
    // Calls behind it wait.
    state.seal();
  } else settleRepeated(state, set, matched.prepared, ops);
}

/** Gives every rank its result. */
function settleRepeated(
  state: CommState,
  set: CallSet,
  prepared: readonly Prepared<unknown>[],
  ops: readonly Operation[],
): void {
  const { calls } = set;
  const order = state.session.scheduler.wakeOrder(set);
  state.settleLater(
    () => {
      for (const rank of order) {
        const call = calls[rank] as RankCall;
        completeOp(ops[rank] as Operation, resultOf(prepared[rank] as Prepared<unknown>, call));
      }
    },
    wakeUpCost(calls[order[0] as number], ops.length),
  );
}

/** The first call that was cancelled or has failed; `undefined` when all are pending. */
export function firstSettled(postings: readonly Posting[]): Posting | undefined {
  return postings.find((posting) => !isPending(posting));
}

function failMismatch(state: CommState, pending: PendingCollective, mismatch: Mismatch): void {
  const errorOf = mismatchErrors(pending, mismatch);
  failAll(state, pending.posted, ({ op }) => errorOf(op.rank));
}

function runAfterBarrier(
  state: CommState,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  const proceed = (): DispatchResult => prepareAndSubmit(state, set, postings);
  const barrier = state.job?.barrier(set);
  if (barrier === undefined) return proceed();
  const submitAnyway = (): void => submitAbandoned(state, set);
  const done = afterBarrier<unknown>(state, barrier, postings, proceed, submitAnyway);
  return done.then((left) => (postings.every(isPending) ? left : queuedInSession));
}

/** Submits a call that no rank of this process awaits any more: its peers are blocked in it. */
function submitAbandoned(state: CommState, set: CallSet): void {
  const { session } = state;
  if (set.collective === "capture" || set.calls.some(hasReleasedBuffer)) return;
  const { cache: _, ...once } = set;
  const isUnknown = set.calls.some((call) => call.recvCounts === undefined);
  if (set.collective === "allToAllv" && isUnknown) {
    void Promise.resolve(exchangeCounts(session, once)).catch(() => undefined);
    return;
  }
  prepareMemory(session, once);
  void Promise.resolve(session.execute(once)).catch(() => undefined);
}

function prepareAndSubmit(
  state: CommState,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  if (set.collective === "split" || set.collective === "capture") {
    const changed = set.collective === "split" ? split(state, set) : capture(state, set);
    if (changed instanceof Promise) return changed;
    state.session.scheduler.clock?.join(set);
    return markSubmitted([postings], undefined);
  }
  if (set.calls.every(hasReceiveCounts)) return checkAndSubmit(state, set, postings);
  // Exchanged counts and allocated memory differ from one call to the next.
  const { cache: _, ...once } = set;
  const unknown = set.calls.some((call) => call.recvCounts === undefined);
  const exchanged = unknown ? exchangeCounts(state.session, once) : undefined;
  return andThen<void, DispatchResult>(exchanged, () => checkAndSubmit(state, once, postings));
}

/** Submits a set with counts and receive buffers, after the checks of its memory. */
function checkAndSubmit(
  state: CommState,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  prepareMemory(state.session, set);
  const written = state.session.observer?.findWrite(set.calls);
  if (written !== undefined) throw new PerRankError(writtenError(set.comm, written));
  return submitWork(state, set, [postings]);
}

/** Submits checked work; `calls` are its postings, matched pairs together. */
export function submitWork(
  state: CommState,
  work: Work,
  calls: readonly (readonly Posting[])[],
): DispatchResult {
  const { session, queueing } = state;
  if (queueing === undefined) return markSubmitted(calls, session.execute(work));
  return submitPostings(state, calls.flat(), (completion) => queueing.submit(work, completion));
}

/** Submits calls to a session that queues work; `submit` passes them to it. */
export function submitPostings(
  { submitted }: CommState,
  postings: readonly Posting[],
  submit: (completion: Completion) => void,
): typeof queuedInSession {
  submitted.add(new PostedSubmission(postings), submit);
  for (const { op } of postings) submitOp(op);
  return queuedInSession;
}

/** Checks the memory of a complete set, and allocates receive buffers of exchanged lengths. Throws when it cannot be dispatched. */
function prepareMemory(session: Session, set: CallSet): void {
  assertLive(set);
  assertNoAliasing(set);
  if (set.collective === "allToAllv") provideReceiveBuffers(session, set);
}

/** Records the calls of a complete capture. */
function capture(state: CommState, set: CallSet): void {
  const { session } = state;
  const recorded = recordedWork(set);
  for (const each of recorded ?? []) {
    if ("ends" in each) assertLive({ ...set, calls: each.ends.map(({ call }) => call) });
    else prepareMemory(session, each);
  }
  const graph = recorded && session.capture(set.comm, recorded);
  if (graph !== undefined) graphNumbers.set(graph, ++state.recordings);
  for (const call of set.calls) call.graph = graph;
}

/**
 * The recorded calls of a complete capture, each as a call of all ranks, in order; `undefined` where replays make them one by one.
 *
 * The result is alike on all ranks, though a rank may record no messages, or nothing: a process with one rank of several always
 * replays one call.
 */
function recordedWork({ comm, number, calls }: CallSet): RecordedWork[] | undefined {
  const recorded = calls[0]?.recorded;
  const isOnlyRankHere = comm.local.length === 1 && comm.ranks.length > 1;
  const hasMessages = calls.some((call) => call.recorded?.messages.length !== 0);
  if (!isOnlyRankHere && (hasMessages || recorded?.calls.length === 0)) return undefined;
  const work = (recorded?.calls ?? []).map(({ collective }, index): RecordedWork => {
    const ofRanks = calls.map(({ recorded }) => recorded?.calls[index] as RankCall);
    const cache = { planned: undefined, repeat: undefined };
    return { comm, number, collective, calls: ofRanks, cache };
  });
  // The last come first: the places of the others stay.
  for (const each of recorded?.messages.toReversed() ?? []) work.splice(each.place, 0, each);
  return work;
}

const graphNumbers = new WeakMap<object, number>();

/** The number of a recording among those of its communicator: ranks compare which one they replay. */
export function graphNumber(graph: object): number | undefined {
  return graphNumbers.get(graph);
}

function cancelError(
  pending: PendingCollective,
  ranks: readonly number[],
  rank: number,
): CommAbortedError {
  return new CommAbortedError(
    {
      headline: `call ${pending.number} on "${pending.comm.name}": ${ranksText(ranks)} cancelled it`,
      hint: "nothing was written; the communicator is still in step",
    },
    { rank, size: pending.postings.length, comm: pending.comm.name, call: pending.number, ranks },
  );
}

// The barrier of processes before a call that connects their ranks for the first time.
//
// Submitting such a call would block this process until its peers submit it: no deadline, signal or loss would be noticed.

/**
 * Waits for the peers, then proceeds. Where a rank of this process has cancelled the call by then, or a peer is lost, the
 * communicator ends in this process. `submitAnyway` runs where the peers are blocked in the call and no rank of this process
 * awaits it any more.
 */
export async function afterBarrier<T>(
  state: CommState,
  barrier: PeerBarrier,
  postings: readonly Posting[],
  proceed: () => T,
  submitAnyway: () => void,
): Promise<T | undefined> {
  let together = false;
  const wait = new AbortController();
  state.barrierWait = wait;
  try {
    together = await barrier(wait.signal).finally(() => {
      state.barrierWait = undefined;
    });
  } catch (error) {
    state.failures.failEach(postings, errorsByCall(error, state));
  }
  const cancelled = firstSettled(postings);
  if (together && cancelled === undefined) return proceed();
  // No other process goes on with the call.
  if (together && !state.isDistributed) return undefined;
  try {
    if (together) submitAnyway();
  } catch {
    // Its own call has failed before.
  }
  abandon(state, cancelled ?? (postings[0] as Posting));
  return undefined;
}

// Settling: every rank gets its result or its error, after pending awaits have subscribed.

/** The result of a dispatch of calls that the session has queued: the ledger dispatches others meanwhile. */
const queuedInSession = Symbol("queuedInSession");

/** The rest of a dispatch: nothing, a wait, or calls that the session has queued. */
type DispatchResult = undefined | typeof queuedInSession | Promise<unknown>;

/** The session has taken these calls and messages. */
function markSubmitted(
  calls: readonly (readonly Posting[])[],
  done: void | Promise<void>,
): undefined | Promise<void> {
  for (let nth = 0; nth < calls.length; nth++) {
    const postings = calls[nth] as readonly Posting[];
    const atPs = lastPostedAtPs(postings);
    for (let at = 0; at < postings.length; at++) {
      const { op } = postings[at] as Posting;
      op.submittedAtPs = atPs;
      submitOp(op);
    }
  }
  return done instanceof Promise ? done : undefined;
}

/** Virtual time at which the last rank made a call; before that, the call is not complete. */
function lastPostedAtPs(postings: readonly Posting[]): number {
  let last = 0;
  for (let at = 0; at < postings.length; at++)
    last = Math.max(last, (postings[at] as Posting).call.postedAtPs);
  return last;
}

/** Runs `work`, then `settled`; what goes wrong becomes the error of every posting of these calls and messages. */
export function attempt(
  state: CommState,
  calls: readonly (readonly Posting[])[],
  work: () => DispatchResult,
  settled?: () => void,
): void | Promise<void> {
  try {
    const left = work();
    if (left instanceof Promise) {
      return left.then(
        (rest) => {
          if (rest !== queuedInSession) settled?.();
        },
        (error) => failDispatched(state, calls.flat(), error),
      );
    }
    if (left !== queuedInSession) settled?.();
  } catch (error) {
    failDispatched(state, calls.flat(), error);
  }
}

/** Gives every rank of these calls and messages its result, in this order, unless its deadline passed before that. */
export function settle(state: CommState, calls: readonly (readonly Posting[])[]): void {
  const inTime = calls.some((call) => call.some(isLate)) ? failLate(state, calls) : calls;
  state.settleLater(() => {
    for (let nth = 0; nth < inTime.length; nth++) {
      const postings = inTime[nth] as readonly Posting[];
      for (let at = 0; at < postings.length; at++) {
        const { op, call, prepared } = postings[at] as Posting;
        op.finishedAtPs = call.finishedAtPs;
        completeOp(op, resultOf(prepared, call));
      }
    }
  }, totalCost(inTime));
}

/** The bytes of a call that take as long to move as one rank takes to be woken. */
const bytesPerWakeUp = 2048;

/** The cost of these calls in wake-ups. */
function totalCost(calls: readonly (readonly Posting[])[]): number {
  let cost = 0;
  for (const postings of calls) cost += wakeUpCost(postings[0]?.call, postings.length);
  return cost;
}

/** The cost of one call in wake-ups: one for each rank, and those that take as long as its bytes. */
function wakeUpCost(call: RankCall | undefined, ranks: number): number {
  const bytes = Math.max(call?.send?.byteLength ?? 0, call?.recv?.byteLength ?? 0);
  return ranks * (1 + bytes / bytesPerWakeUp);
}

/** Fails the calls with deadlines that have passed; gives the others. */
function failLate(
  state: CommState,
  calls: readonly (readonly Posting[])[],
): readonly (readonly Posting[])[] {
  const late = calls.flatMap((call) => call.filter(isLate).map((posting) => ({ posting, call })));
  // The deadline that passes first aborts the communicator, in any order of resumption.
  late.sort(
    ({ posting: a }, { posting: b }) => deadlineOf(a) - deadlineOf(b) || a.op.rank - b.op.rank,
  );
  for (const { posting, call } of late) {
    const deadlinePs = deadlineOf(posting);
    const behind = call.filter(({ call: { postedAtPs } }) => postedAtPs > deadlinePs);
    state.timeOut(posting, missingCause(behind.map(({ call: { rank } }) => rank)));
  }
  return calls.map((call) => call.filter((posting) => !isLate(posting)));
}

function isLate(posting: Posting): boolean {
  return posting.timeoutMs !== undefined && posting.call.finishedAtPs > deadlineOf(posting);
}

/** Fails calls whose dispatch threw. Where ranks of other processes may be in the call, the communicator ends here. */
export function failDispatched(
  state: CommState,
  postings: readonly Posting[],
  error: unknown,
): void {
  const seen = releasedUnderWay(state.comm, postings, error);
  failAll(state, postings, errorsByCall(seen, state));
  const [first] = postings;
  if (first !== undefined && state.isDistributed) state.settleLater(() => abandon(state, first), 1);
}

/** Fails every rank of a call, once those that were about to await it do. */
export function failAll(
  state: CommState,
  postings: readonly Posting[],
  errorOf: (posting: Posting) => unknown,
): void {
  const atPs = lastPostedAtPs(postings);
  state.settleLater(() => {
    for (const posting of postings) {
      if (posting.op.pending) posting.op.finishedAtPs = atPs;
      state.failures.fail(posting.op, errorOf(posting));
    }
  }, postings.length);
}

/** A rank has given up a call that those of other processes go on with: here the communicator ends. */
export function abandon(state: CommState, { op }: Posting): void {
  state.abortAfter(op, op.error as CommError, "gave up");
  state.session.abort(state.comm, op.error);
}

function isPending({ op }: Posting): boolean {
  return op.pending;
}
