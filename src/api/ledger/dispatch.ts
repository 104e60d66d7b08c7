/**
 * Dispatches complete calls: compares them, submits them to the session, and gives every rank its result or its error.
 *
 * A set that differs between ranks never reaches the session.
 */
import type {
  CallSet,
  PeerBarrier,
  RankCall,
  RepeatedCall,
  Session,
  Transfer,
  Work,
} from "../backend.ts";
import { provideReceiveBuffers } from "../collectives/all-to-allv.ts";
import { ranksText } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { hasReceiveCounts } from "../member/prepared.ts";
import {
  aliasingErrors,
  assertLive,
  assertNoAliasing,
  isReleased,
  releasedPairError,
  releasedRemoteError,
  writeError,
  writtenPairError,
} from "./buffer-checks.ts";
import {
  callsIn,
  compareAcrossProcesses,
  type Mismatch,
  mismatchErrors,
  mismatchOf,
  recordedMismatch,
  transferMismatch,
} from "./compare.ts";
import { exchangeCounts } from "./exchanges.ts";
import { errorsByCall } from "./failures.ts";
import { MatchedCall } from "./matched-call.ts";
import { type MatchedPair, remoteEnds, takePairs } from "./messages.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { PendingCollective, RankQueues } from "./queues.ts";
import { numberGraph, recordedSets } from "./recordings.ts";
import {
  abandon,
  attempt,
  type DispatchHost,
  type DispatchResult,
  failAll,
  failAt,
  failDispatched,
  isPending,
  lastPostedAtPs,
  markSubmitted,
  queued,
  settle,
} from "./settle.ts";
import { PostedSubmission, type Submission } from "./submission.ts";

/** Dispatches a complete collective call. A promise: the session still executes it. */
export function dispatchCollective(
  host: DispatchHost,
  pending: PendingCollective,
): void | Promise<void> {
  const postings = pending.posted;
  const cancelled = firstSettled(postings);
  if (cancelled !== undefined) {
    // Ranks of other processes are not notified, and go on with the call.
    if (postings.length < pending.postings.length) return abandon(host, cancelled);
    const ranks = postings.flatMap(({ op }) => (op.pending ? [] : [op.rank]));
    failAll(host, postings, ({ op }) => cancelError(pending, ranks, op.rank));
    return;
  }
  const compared = host.job && compareAcrossProcesses(host, host.job, pending);
  if (compared === undefined) return dispatchCompared(host, pending, postings);
  const serve = (mismatch: Mismatch | undefined): void | Promise<void> => {
    if (mismatch !== undefined) return failMismatch(host, pending, mismatch);
    const late = firstSettled(postings);
    return late === undefined ? dispatchCompared(host, pending, postings) : abandon(host, late);
  };
  return compared.then(serve, (error) => {
    const errorOf = errorsByCall(error, host);
    for (const posting of postings) {
      host.fail(posting, errorOf(posting));
      abandon(host, posting);
    }
  });
}

/** Dispatches a call that is equal in all processes, as far as calls are compared. */
function dispatchCompared(
  host: DispatchHost,
  pending: PendingCollective,
  postings: readonly Posting[],
): void | Promise<void> {
  const matched = MatchedCall.lookup(postings);
  return matched === undefined
    ? dispatchNew(host, pending, postings)
    : dispatchMatched(host, pending, postings, matched);
}

/** Dispatches a call that was not made before. */
function dispatchNew(
  host: DispatchHost,
  pending: PendingCollective,
  postings: readonly Posting[],
): void | Promise<void> {
  const calls = postings.map(callOf);
  const mismatch = findMismatch(host, pending, calls);
  if (mismatch !== undefined) return failMismatch(host, pending, mismatch);
  const set = setOf(pending, calls, MatchedCall.store(postings, calls));
  return runSet(host, set, postings, runAfterBarrier);
}

/** Dispatches a call that all ranks have made before with the same arguments. */
function dispatchMatched(
  host: DispatchHost,
  pending: PendingCollective,
  postings: readonly Posting[],
  matched: MatchedCall,
): void | Promise<void> {
  const { repeat, isFixed } = matched;
  const isKnown = isFixed && host.session.observer === undefined && matched.buffersLive();
  if (isKnown && repeat !== undefined) {
    return submitRepeated(host, new PostedSubmission(postings), repeat, pending.number);
  }
  const set = setOf(pending, postings.map(callOf), matched);
  const run = isKnown && host.job === undefined ? submit : runAfterBarrier;
  return runSet(host, set, postings, run);
}

/** Queues a call again that the session has planned before; its buffers live. */
export function submitRepeated(
  host: DispatchHost,
  call: Submission,
  repeat: RepeatedCall,
  number: number,
): void {
  try {
    host.enqueue(call, (completion) => repeat.submit(number, completion));
  } catch (error) {
    failDispatched(host, call.postings, error);
  }
}

/** The first call that was cancelled or has failed; `undefined` when all are pending. */
function firstSettled(postings: readonly Posting[]): Posting | undefined {
  for (let at = 0; at < postings.length; at++) {
    const posting = postings[at] as Posting;
    if (!posting.op.pending) return posting;
  }
  return undefined;
}

function failMismatch(host: DispatchHost, pending: PendingCollective, mismatch: Mismatch): void {
  const errorOf = mismatchErrors(pending, mismatch);
  failAll(host, pending.posted, ({ op }) => errorOf(op.rank));
}

/** The mismatch of a complete call; `undefined` when the calls of all ranks are equal. */
function findMismatch(
  { windows }: DispatchHost,
  pending: PendingCollective,
  calls: readonly RankCall[],
): Mismatch | undefined {
  const fault = mismatchOf(pending) ?? windows.assign(calls);
  if (fault !== undefined || calls[0]?.collective !== "capture") return fault;
  if (pending.arrived === pending.postings.length) return recordedMismatch(calls, windows);
  for (const call of calls.flatMap(callsIn)) windows.assign([call]);
  return undefined;
}

function callOf({ call }: Posting): RankCall {
  return call;
}

function setOf(
  { comm, number }: PendingCollective,
  calls: readonly RankCall[],
  cache: MatchedCall,
): CallSet {
  return { comm, number, collective: calls[0]?.collective ?? "barrier", calls, cache };
}

/** Runs a set by `run`, then gives every rank its result. */
function runSet(
  host: DispatchHost,
  set: CallSet,
  postings: readonly Posting[],
  run: (host: DispatchHost, set: CallSet, postings: readonly Posting[]) => DispatchResult,
): void | Promise<void> {
  return attempt(
    host,
    postings,
    () => run(host, set, postings),
    () => {
      const order = host.session.scheduler.wakeOrder(set);
      settle(host, [order.map((rank) => postings[rank] as Posting)]);
    },
  );
}

function runAfterBarrier(
  host: DispatchHost,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  const barrier = host.job?.barrier(set);
  if (barrier === undefined) return prepareAndSubmit(host, set, postings);
  const proceed = (): DispatchResult => prepareAndSubmit(host, set, postings);
  const submitAnyway = (): void => submitAbandoned(host, set);
  const done = afterBarrier<unknown>(host, barrier, postings, { proceed, submitAnyway });
  return done.then((left) => (postings.every(isPending) ? left : queued));
}

/** Submits a call that no rank of this process awaits any more: its peers are blocked in it. */
function submitAbandoned(host: DispatchHost, set: CallSet): void {
  const { session } = host;
  if (set.collective === "capture" || set.calls.some(isReleased)) return;
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
  host: DispatchHost,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  if (set.collective === "split" || set.collective === "capture") {
    const changed = set.collective === "split" ? host.split(set) : capture(host.session, set);
    if (changed instanceof Promise) return changed;
    host.session.scheduler.clock?.join(set);
    return markSubmitted([postings], undefined);
  }
  if (set.calls.every(hasReceiveCounts)) return checkAndSubmit(host, set, postings);
  // Exchanged counts and allocated memory differ from one call to the next.
  const { cache: _, ...once } = set;
  const unknown = set.calls.some((call) => call.recvCounts === undefined);
  const exchanged = unknown ? exchangeCounts(host.session, once) : undefined;
  if (exchanged instanceof Promise)
    return exchanged.then<unknown>(() => checkAndSubmit(host, once, postings));
  return checkAndSubmit(host, once, postings);
}

/** Submits a set with counts and receive buffers, after the checks of its memory. */
function checkAndSubmit(
  host: DispatchHost,
  set: CallSet,
  postings: readonly Posting[],
): DispatchResult {
  prepareMemory(host.session, set);
  const written = host.session.observer?.findWrite(set.calls);
  if (written !== undefined) throw writeError(set, written);
  return submit(host, set, postings);
}

/** Submits a checked set. */
function submit(host: DispatchHost, set: CallSet, postings: readonly Posting[]): DispatchResult {
  return submitWork(host, set, [postings]);
}

/** Submits checked work; `calls` are its postings, matched pairs together. */
function submitWork(
  host: DispatchHost,
  work: Work,
  calls: readonly (readonly Posting[])[],
): DispatchResult {
  const { session, queueing } = host;
  if (queueing === undefined) return markSubmitted(calls, session.execute(work));
  const call = new PostedSubmission(calls.flat());
  host.enqueue(call, (completion) => queueing.submit(work, completion));
  return queued;
}

/** Checks the memory of a complete set, and allocates receive buffers of exchanged lengths. Throws when it cannot be dispatched. */
function prepareMemory(session: Session, set: CallSet): void {
  assertLive(set);
  assertNoAliasing(set);
  if (set.collective === "allToAllv") provideReceiveBuffers(session, set);
}

/** Records the calls of a complete capture. */
function capture(session: Session, set: CallSet): void {
  const recorded = recordedSets(set);
  for (const each of recorded ?? []) prepareMemory(session, each);
  const graph = recorded && session.capture(set.comm, recorded);
  if (graph !== undefined) numberGraph(set.comm, graph);
  for (const call of set.calls) call.graph = graph;
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

// Messages: sends and receives at the heads of their ranks' queues.

/** Dispatches matched pairs, and messages with the other end in another process. `undefined`: there are none; true: dispatched. */
export function dispatchMessages(
  host: DispatchHost,
  queues: RankQueues,
): true | Promise<void> | undefined {
  if (!queues.haveMessages) return undefined;
  const remoteNow = (): TransferPosting[] => remoteEnds(host.comm, () => queues.batches());
  const cancelled = remoteNow().find((end) => !isPending(end));
  // Ranks of other processes are not notified, and would match the next message with it.
  if (cancelled !== undefined) abandon(host, cancelled);
  // Settled transfers match no others. In a world of one process only a cancellation settles one that has arrived.
  const isAlone = host.comm.local.length === host.comm.ranks.length;
  const { arrived } = queues;
  const changed = new Set(isAlone ? arrived : queues.batches());
  for (const batch of changed) batch.closeSettled();
  for (const op of queues.takeCancelled()) {
    const batch = queues.batch(op.rank);
    if (batch?.close(op)) changed.add(batch);
  }
  const remote = remoteNow();
  const waiting = awaitExchangePeers(host, queues, remote);
  if (waiting !== undefined) return waiting;
  for (const { op } of remote) {
    const batch = queues.batch(op.rank);
    if (batch?.close(op)) changed.add(batch);
  }
  queues.markCompared(arrived);
  const matched = takePairs(arrived, (rank) => queues.batch(rank));
  for (const { sendBatch, recvBatch } of matched) changed.add(sendBatch).add(recvBatch);
  const leave = (): boolean => {
    const done = [...changed].filter((batch) => batch.isDone && queues.batch(batch.rank) === batch);
    for (const { rank } of done) queues.shift(rank);
    return done.length > 0;
  };
  if (matched.length + remote.length === 0) return leave() ? true : undefined;
  const served = dispatchPairs(host, queues, matched, remote);
  if (served instanceof Promise) return served.then(() => void leave());
  leave();
  return true;
}

/**
 * Connects the ranks of messages for the first time, then dispatches the messages; `undefined` where all are connected. Until
 * then the messages stay in their queues, so that the end of the communicator fails them.
 */
function awaitExchangePeers(
  host: DispatchHost,
  queues: RankQueues,
  remote: readonly TransferPosting[],
): Promise<void> | undefined {
  const { comm, session, job } = host;
  const barrier = job?.barrier({ comm, transfers: [], remote });
  if (barrier === undefined) return undefined;
  const proceed = (): unknown => dispatchMessages(host, queues);
  const submitAnyway = (): void => {
    const left = remote.filter(({ call }) => !isReleased(call));
    void Promise.resolve(session.execute({ comm, transfers: [], remote: left })).catch(
      () => undefined,
    );
  };
  return afterBarrier(host, barrier, remote, { proceed, submitAnyway }).then(() => undefined);
}

/** Dispatches matched pairs, and messages with the other end in another process, as one exchange. */
function dispatchPairs(
  host: DispatchHost,
  queues: RankQueues,
  matched: readonly MatchedPair[],
  remote: readonly TransferPosting[],
): void | Promise<void> {
  const aliasingError = aliasingErrors(host.comm, matched, (memory) => queues.sharersOf(memory));
  const fitting = matched.filter((pair) => {
    const errorOf = pairError(host, pair) ?? aliasingError(pair);
    if (errorOf === undefined) return true;
    host.settleLater(() => {
      const ends = [pair.send, pair.recv];
      const atPs = lastPostedAtPs(ends);
      for (const posting of ends) failAt(host, posting, errorOf(posting), atPs);
    }, 2);
    return false;
  });
  const kept = liveRemoteEnds(host, remote);
  if (fitting.length === 0 && kept.length === 0) return;
  const pairs = fitting.map(({ send, recv }) => [send, recv]);
  const messages = [...pairs, ...kept.map((end) => [end])];
  const transfers: Transfer[] = fitting.map(({ send, recv, ...joined }) => ({
    send: send.call,
    recv: recv.call,
    sendNumber: send.op.call,
    recvNumber: recv.op.call,
    ...joined,
  }));
  return attempt(
    host,
    messages.flat(),
    () => submitWork(host, { comm: host.comm, transfers, remote: kept }, messages),
    () => settle(host, messages),
  );
}

/** Remote messages with live buffers. Any other fails, and the communicator with it: its other end may be under way. */
function liveRemoteEnds(host: DispatchHost, remote: readonly TransferPosting[]): TransferPosting[] {
  const gone = remote.filter(({ call }) => isReleased(call));
  if (gone.length === 0) return [...remote];
  for (const end of gone) host.fail(end, releasedRemoteError(host.comm, end));
  host.settleLater(() => abandon(host, gone[0] as TransferPosting), 1);
  return remote.filter(({ call }) => !isReleased(call));
}

/** The error of a pair that cannot be dispatched, for either side. */
function pairError(
  { comm, session }: DispatchHost,
  pair: MatchedPair,
): ((posting: Posting) => CommError) | undefined {
  const fault = transferMismatch(comm, pair) ?? releasedPairError(comm, pair);
  if (fault !== undefined) return fault;
  const written = session.observer?.findWrite([pair.send.call, pair.recv.call]);
  return written && writtenPairError(comm, written);
}

// The barrier of processes before a call that connects their ranks for the first time.
//
// Submitting such a call would block this process until its peers submit it: no deadline, signal or loss would be noticed.

/** The continuations of a barrier. */
interface AfterBarrier<T> {
  readonly proceed: () => T;
  /** Runs where the peers are blocked in the call and no rank of this process awaits it any more. */
  readonly submitAnyway: () => void;
}

/**
 * Waits for the peers, then proceeds. Where a rank of this process has cancelled the call by then, or a peer is lost, the
 * communicator ends in this process.
 */
async function afterBarrier<T>(
  host: DispatchHost,
  barrier: PeerBarrier,
  postings: readonly Posting[],
  { proceed, submitAnyway }: AfterBarrier<T>,
): Promise<T | undefined> {
  let together = false;
  try {
    together = await host.barrier.wait(barrier);
  } catch (error) {
    const errorOf = errorsByCall(error, host);
    for (const posting of postings) host.fail(posting, errorOf(posting));
  }
  const cancelled = firstSettled(postings);
  if (together && cancelled === undefined) return proceed();
  try {
    if (together) submitAnyway();
  } catch {
    // Its own call has failed before.
  }
  abandon(host, cancelled ?? (postings[0] as Posting));
  return undefined;
}

/** The barriers of a communicator's calls, one at a time. */
export class BarrierWait {
  #open: AbortController | undefined;

  /** A call waits for its peers. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** Cancels the wait, unless all peers have arrived by then. */
  cancel(): void {
    this.#open?.abort();
  }

  /** Waits for the peers; true when all have arrived. */
  async wait(barrier: PeerBarrier): Promise<boolean> {
    const open = new AbortController();
    this.#open = open;
    try {
      return await barrier(open.signal);
    } finally {
      this.#open = undefined;
    }
  }
}
