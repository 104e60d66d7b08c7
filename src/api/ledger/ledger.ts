/**
 * The call ledger of one communicator: ranks post calls, the ledger matches them and dispatches complete ones, one at a time.
 *
 * The calls of a rank are dispatched in program order, over all its communicators. A collective call is dispatched at the head
 * of all ranks' streams, a send and its receive at the head of both.
 */
import type { CommInfo, Completion } from "../backend.ts";
import type { CommError } from "../errors.ts";
import type { CallContext, Operation } from "../op.ts";
import { CallBatches } from "./batch.ts";
import { aliasingErrors, releasedErrors, transferMismatch, writtenError } from "./checks.ts";
import { CommState, type WorldContext } from "./comm-state.ts";
import { findInversion, type OpenCalls } from "./deadlock/order.ts";
import {
  abandon,
  afterBarrier,
  attempt,
  dispatchCollective,
  failAll,
  firstSettled,
  settle,
  submitPostings,
  submitWork,
} from "./dispatch.ts";
import type { Cancellation } from "./failures.ts";
import {
  hasReleasedBuffer,
  MatchedMessages,
  type Posting,
  type TransferPosting,
} from "./posting.ts";
import {
  firstOpen,
  type MatchedPair,
  MessageBatch,
  PendingCollective,
  type QueueEntry,
} from "./queues.ts";

/** Matches the calls of all ranks of one communicator. */
export class Ledger extends CommState {
  /** Batches of repeated calls. */
  readonly batches: CallBatches;
  readonly #contexts: readonly CallContext[];

  constructor(comm: CommInfo, world: WorldContext) {
    super(comm, world);
    const { monitor, readyQueue } = world;
    this.batches = new CallBatches(this);
    this.#contexts = comm.ranks.map((worldRank, rank) => ({
      ...{ rank, worldRank, callingRank: worldRank, observer: monitor },
      callSites: monitor.callSites,
      onCallbackError: (op) => this.failures.record(op),
      resumption: readyQueue,
    }));
  }

  seal(): void {
    this.batches.seal();
  }

  /** The open calls of the first rank here, for other processes. */
  get openCalls(): OpenCalls {
    const { comm, submitted, queues } = this;
    const [rank = 0] = comm.local;
    return {
      ...{ comm, next: this.batches.ofRank(rank).next },
      ...{ submitted: submitted.groups, queued: queues.groups(rank) },
    };
  }

  override reset(): void {
    super.reset();
    this.batches.reset();
  }

  /** The context of all calls of a rank; `undefined` where another rank's program may make some. */
  fixedContext(rank: number): CallContext | undefined {
    return this.deadlines === undefined ? undefined : this.#contexts[rank];
  }

  /** The context of a rank's next call. */
  currentContext(rank: number): CallContext {
    const context = this.#contexts[rank] as CallContext;
    const { callingRank } = this.world.monitor;
    return callingRank === undefined || callingRank === context.callingRank
      ? context
      : { ...context, callingRank };
  }

  /** The context of a rank's next call; `undefined` where the rank may make no calls now. */
  admittedContext(rank: number): CallContext | undefined {
    const { worldRank } = this.#contexts[rank] as CallContext;
    const reason = this.world.monitor.refusal(worldRank);
    return reason === undefined ? this.currentContext(rank) : undefined;
  }

  /** Takes a rank's next collective call. `beforeDispatch` may cancel it. */
  post(rank: number, posting: Posting, beforeDispatch?: () => void): void {
    this.#sealRows();
    if (!this.admit(rank, posting)) return;
    this.enqueue(rank, posting, this.batches.ofRank(rank).assign(posting.op), beforeDispatch);
  }

  enqueue(rank: number, posting: Posting, number: number, beforeDispatch?: () => void): void {
    const pending = this.#collectiveAt(number);
    pending.add(posting);
    this.queues.push(rank, pending);
    if (posting.timeoutMs !== undefined) this.deadlines?.watch(posting);
    this.#notePosted(pending, rank);
    beforeDispatch?.();
    if (pending.complete) this.dispatchReady();
  }

  /** The call of that number; the first rank that makes it creates it. */
  #collectiveAt(number: number): PendingCollective {
    const { collectives } = this;
    const { number: first = number } = collectives.first ?? {};
    const known = collectives.at(number - first);
    if (known !== undefined) return known;
    const pending = new PendingCollective(number, this.comm);
    collectives.push(pending);
    return pending;
  }

  #notePosted(made: QueueEntry, rank: number): void {
    this.world.monitor.noteActivity();
    if (this.#hasOtherCalls) this.#compareOrder(made, rank);
  }

  /** Calls of other communicators are open as well, or may have been made in another order. */
  get #hasOtherCalls(): boolean {
    const { size, issued } = this.world.streams;
    return this.queues.size !== size || issued !== undefined;
  }

  #compareOrder(made: QueueEntry, rank: number): void {
    const { world } = this;
    const inversion = findInversion(world.streams, made, rank);
    if (inversion !== undefined) world.onInversion(inversion);
    if (world.orderWatch !== undefined && world.isBlocked) world.orderWatch.noteChange();
  }

  /** Closes the open batches before another call: calls without a complete row are queued before it. */
  #sealRows(): void {
    this.batches.seal();
    this.world.appending?.seal();
  }

  /** Takes sends and receives of a rank that match their counterparts in any order. */
  postMessages(rank: number, transfers: readonly TransferPosting[]): void {
    this.#sealRows();
    const admitted = transfers.filter((each) => this.admit(rank, each));
    if (admitted.length === 0) return;
    this.messageNumbers.assign(rank, admitted);
    const batch = new MessageBatch(this.comm, rank, admitted);
    this.queues.push(rank, batch);
    const { deadlines } = this;
    if (deadlines !== undefined) for (const transfer of admitted) deadlines.watch(transfer);
    this.#notePosted(batch, rank);
    this.dispatchReady();
  }

  /**
   * Takes back a call that is still waiting for other ranks; they fail when they make it. One that was submitted, or that
   * other processes may go on with, cannot be taken back: it fails, and the communicator with it.
   */
  cancel(op: Operation, errorOf: (how: Cancellation) => CommError): void {
    if (!op.pending) return;
    const wasSubmitted = op.status === "submitted";
    const isAwaited = this.isDistributed && this.isExecuting && this.queues.isAtHead(op);
    const begun = wasSubmitted || isAwaited;
    const error = errorOf({ wasSubmitted, endsAll: begun || this.isDistributed });
    this.failures.fail(op, error);
    this.queues.cancel(op);
    if (begun) this.abortAfter(op, error, "was cancelled in");
    this.world.monitor.noteActivity();
    this.dispatchReady();
  }

  /** Dispatches all complete calls, until none is left or the session needs time. */
  dispatchReady(): void {
    const { queues, world } = this;
    while (!this.isExecuting && this.termination === undefined) {
      const served =
        this.#dispatchCollective() ?? (queues.batches > 0 ? dispatchMessages(this) : undefined);
      if (served === undefined) break;
      if (served instanceof Promise) this.track(served);
      else world.monitor.noteActivity();
    }
    if (!this.isExecuting) {
      if (this.termination !== undefined) queues.clear();
      this.checkIdle();
    }
    world.dispatchFreed();
  }

  /** Dispatches the oldest collective call; `undefined` if it is not complete. */
  #dispatchCollective(): true | Promise<void> | undefined {
    const pending = this.collectives.first;
    if (pending === undefined || !pending.complete || !this.queues.isAtAllHeads(pending))
      return undefined;
    this.collectives.shift();
    pending.isDispatched = true;
    const served = dispatchCollective(this, pending);
    if (served instanceof Promise) return served.then(() => this.queues.shiftAll(pending));
    this.queues.shiftAll(pending);
    return true;
  }

  track(served: Promise<void>): void {
    const { world } = this;
    const { monitor, readyQueue } = world;
    this.isExecuting = true;
    world.executing++;
    if (this.#hasOtherCalls) world.orderWatch?.noteChange();
    monitor.executing(1);
    void served.then(() => {
      this.isExecuting = false;
      world.executing--;
      monitor.executing(-1);
      this.dispatchReady();
      world.checkIdle();
      readyQueue?.pickLater();
    });
  }
}

// Sends and receives at the heads of their ranks' queues.

/**
 * Dispatches matched pairs, and messages with the other end in another process (`remote`); `undefined` if there are none.
 *
 * A batch leaves its stream when no message of it is open. Only batches that have come to the head since the last time can
 * match (`arrived`), and only those that lose a message now can be done (`changed`).
 */
function dispatchMessages(state: CommState): true | Promise<void> | undefined {
  const { queues } = state;
  const heads = state.isDistributed ? queues.headBatches() : [];
  const remote = remoteTransfers(state.comm, heads);
  const cancelled = firstSettled(remote);
  if (cancelled !== undefined) {
    // Ranks of other processes are not notified, and would match the next message with it.
    abandon(state, cancelled);
    return undefined;
  }
  // Settled transfers match no others. In a world of one process only a cancellation settles one that has arrived.
  const { arrived } = queues;
  const changed = new Set(state.isDistributed ? heads : arrived);
  for (const batch of changed) batch.closeSettled();
  for (const op of queues.takeCancelled()) {
    const batch = queues.batch(op.rank);
    if (batch?.closeOf(op)) changed.add(batch);
  }
  const waiting = awaitExchangePeers(state, remote);
  if (waiting !== undefined) return waiting;
  for (const end of remote) queues.batch(end.op.rank)?.close(end);
  queues.markCompared(arrived);
  const matched: MatchedPair[] = [];
  for (const [sendBatch, recvBatch] of batchPairs(arrived, (rank) => queues.batch(rank))) {
    if (!takePairs(sendBatch, recvBatch, matched)) continue;
    changed.add(sendBatch).add(recvBatch);
    if (state.world.streams.issued === undefined) continue;
    sendBatch.noteMatched(recvBatch);
    recvBatch.noteMatched(sendBatch);
  }
  // Messages of a rank are numbered in the order posted.
  matched.sort((a, b) => a.send.rank - b.send.rank || a.sendNumber - b.sendNumber);
  const leave = (): boolean => {
    const done = [...changed].filter((batch) => batch.isDone && queues.batch(batch.rank) === batch);
    for (const { rank } of done) queues.shift(rank);
    return done.length > 0;
  };
  if (matched.length + remote.length === 0) return leave() ? true : undefined;
  const served = dispatchPairs(state, matched, remote);
  if (served instanceof Promise) {
    const executing = new Set(remote);
    for (const batch of changed) batch.executing = executing;
    return served.then(() => {
      for (const batch of changed) batch.executing = undefined;
      leave();
    });
  }
  leave();
  return true;
}

/**
 * Waits until the session takes the messages at the heads of their streams and their ranks are connected, then dispatches them;
 * `undefined` where nothing has to wait. Until then the messages stay in their queues, so that the end of the communicator fails
 * them.
 */
function awaitExchangePeers(
  state: CommState,
  remote: readonly TransferPosting[],
): Promise<void> | undefined {
  const { comm, session, job, queues } = state;
  const barrier = job?.barrier({ comm, transfers: [], remote });
  if (barrier === undefined) return undefined;
  // Messages of a rank to itself wait as well.
  const waiting = queues.headBatches().flatMap(({ open }) => open);
  if (waiting.length === 0) return undefined;
  const proceed = (): unknown => dispatchMessages(state);
  const submitAnyway = (): void => {
    const left = remote.filter(({ call }) => !hasReleasedBuffer(call));
    void Promise.resolve(session.execute({ comm, transfers: [], remote: left })).catch(
      () => undefined,
    );
  };
  return afterBarrier(state, barrier, waiting, proceed, submitAnyway).then(() => undefined);
}

/** Dispatches matched pairs, and messages with the other end in another process, as one exchange. */
function dispatchPairs(
  state: CommState,
  matched: readonly MatchedPair[],
  remote: readonly TransferPosting[],
): void | Promise<void> {
  const { comm, queues } = state;
  const aliasingError = aliasingErrors(comm, matched, (memory) => queues.sharersOf(memory));
  const fitting: MatchedPair[] = [];
  const messages: (readonly TransferPosting[])[] = [];
  for (const pair of matched) {
    const { ends } = pair;
    const errorOf = pairError(state, pair) ?? aliasingError(pair);
    if (errorOf !== undefined) failAll(state, ends, errorOf);
    else {
      fitting.push(pair);
      messages.push(ends);
    }
  }
  const kept = liveTransfers(state, remote);
  if (fitting.length === 0 && kept.length === 0) return;
  for (const end of kept) messages.push([end]);
  const cache = fitting.length === 0 ? matchedMessages(state, kept) : undefined;
  const repeat = cache?.repeat;
  if (repeat !== undefined) {
    const number = kept[0]?.op.call ?? -1;
    const submit = (completion: Completion): void => repeat.submit(number, completion);
    return attempt(state, messages, () => submitPostings(state, kept, submit));
  }
  const work = { comm, transfers: fitting, remote: kept, ...(cache && { cache }) };
  return attempt(
    state,
    messages,
    () => submitWork(state, work, messages),
    () => settle(state, messages),
  );
}

/** Matched messages; `undefined` unless they are all that the only rank here made together. */
function matchedMessages(
  { comm, queueing, queues }: CommState,
  remote: readonly TransferPosting[],
): MatchedMessages | undefined {
  if (queueing === undefined || comm.local.length > 1) return undefined;
  const batch = queues.batch(comm.local[0] as number);
  return batch?.transfers.length === remote.length ? MatchedMessages.of(remote) : undefined;
}

/** Remote messages with live buffers. Any other fails, and the communicator with it: its other end may be under way. */
function liveTransfers(state: CommState, remote: readonly TransferPosting[]): TransferPosting[] {
  const released = remote.filter(({ call }) => hasReleasedBuffer(call));
  if (released.length === 0) return [...remote];
  state.failures.failEach(released, (end) => releasedErrors(state.comm, [end.call])?.(end));
  state.settleLater(() => abandon(state, released[0] as TransferPosting), 1);
  return remote.filter(({ call }) => !hasReleasedBuffer(call));
}

/** The error of a pair that cannot be dispatched, for either side. */
function pairError(
  { comm, session }: CommState,
  pair: MatchedPair,
): ((posting: Posting) => CommError) | undefined {
  const { send, recv } = pair;
  const released = hasReleasedBuffer(send) ? send : recv;
  const fault = transferMismatch(comm, pair) ?? releasedErrors(comm, [released]);
  if (fault !== undefined) return fault;
  const written = session.observer?.findWrite([send, recv]);
  return written && writtenError(comm, written);
}

/** The open sends and receives with their other end in another process: their pairs are unknown here. */
function remoteTransfers({ local }: CommInfo, batches: readonly MessageBatch[]): TransferPosting[] {
  return batches.flatMap(({ open }) => open.filter(({ peer }) => !local.includes(peer)));
}

/**
 * The batches at the heads of their ranks' queues that may have messages for each other, by their senders. `arrived` are those
 * that were not compared before: two of the others have nothing left that matches.
 */
function batchPairs(
  arrived: readonly MessageBatch[],
  batchOf: (rank: number) => MessageBatch | undefined,
): (readonly [sendBatch: MessageBatch, recvBatch: MessageBatch])[] {
  const pairs: (readonly [MessageBatch, MessageBatch])[] = [];
  for (const batch of arrived) {
    for (const direction of ["send", "recv"] as const) {
      for (const peer of batch.ends[direction].keys()) {
        const other = batchOf(peer);
        if (other !== undefined) pairs.push(direction === "send" ? [batch, other] : [other, batch]);
      }
    }
  }
  return pairs.sort(([a], [b]) => a.rank - b.rank);
}

/** Takes the sends of one batch that match receives of the other; false where there are none. */
function takePairs(
  sendBatch: MessageBatch,
  recvBatch: MessageBatch,
  pairs: MatchedPair[],
): boolean {
  const sends = sendBatch.ends.send.get(recvBatch.rank);
  const recvs = recvBatch.ends.recv.get(sendBatch.rank);
  if (sends === undefined || recvs === undefined) return false;
  const { length } = pairs;
  for (;;) {
    const send = firstOpen(sends);
    const recv = firstOpen(recvs);
    if (send === undefined || recv === undefined) return pairs.length > length;
    sendBatch.close(send);
    recvBatch.close(recv);
    pairs.push({
      send: send.call,
      recv: recv.call,
      sendNumber: send.op.call,
      recvNumber: recv.op.call,
      sendBatch,
      recvBatch,
      ends: [send, recv],
    });
  }
}
