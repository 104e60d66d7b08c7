/** Matches sends and receives at the heads of their ranks' queues, and dispatches them. */
import type { CommInfo, Completion } from "../backend.ts";
import type { CommError } from "../errors.ts";
import { aliasingErrors, releasedErrors, writtenError } from "./buffer-checks.ts";
import type { CommState } from "./comm-state.ts";
import { transferMismatch } from "./compare.ts";
import {
  abandon,
  afterBarrier,
  attempt,
  failAll,
  firstSettled,
  settle,
  submitPostings,
  submitWork,
} from "./dispatch.ts";
import {
  hasReleasedBuffer,
  MatchedMessages,
  type Posting,
  type TransferPosting,
} from "./posting.ts";
import { firstOpen, type MatchedPair, type MessageBatch } from "./queues.ts";

/**
 * Dispatches matched pairs, and messages with the other end in another process (`remote`); `undefined` if there are none.
 *
 * A batch leaves its stream when no message of it is open. Only batches that have come to the head since the last time can
 * match (`arrived`), and only those that lose a message now can be done (`changed`).
 */
export function dispatchMessages(state: CommState): true | Promise<void> | undefined {
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
  const gone = remote.filter(({ call }) => hasReleasedBuffer(call));
  if (gone.length === 0) return [...remote];
  state.failures.failEach(gone, (end) => releasedErrors(state.comm, [end.call])?.(end));
  state.settleLater(() => abandon(state, gone[0] as TransferPosting), 1);
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

// Matching.

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
