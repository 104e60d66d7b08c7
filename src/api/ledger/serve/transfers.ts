/** Sends and receives that have come to the head of their ranks' lines. */
import type { RemoteTransfer, Transfer } from "../../backend.ts";
import type { CommError } from "../../errors.ts";
import { transferMismatch } from "../agree/compare.ts";
import { disposedHalf, disposedTransfer, isGone, writtenTransfer } from "../agree/lent.ts";
import { sharedTargets } from "../agree/targets.ts";
import { type Meeting, openHalves, takeMeetings } from "../calls/batch.ts";
import type { Lines } from "../calls/lines.ts";
import type { Posting, TransferPosting } from "../calls/posting.ts";
import { onceTogether } from "./once-together.ts";
import {
  abandon,
  attempt,
  failAt,
  isPending,
  lastComing,
  queued,
  submitted,
  type Work,
  wake,
} from "./outcomes.ts";
import type { ServeHost } from "./serve-host.ts";

/** Serves those that meet, and halves with their other end elsewhere. `undefined`: there are none; true: served. */
export function serveTransfers(host: ServeHost, lines: Lines): true | Promise<void> | undefined {
  if (!lines.haveTransfers) return undefined;
  const halvesNow = (): TransferPosting[] => openHalves(host.comm, () => lines.batches());
  const givenUp = halvesNow().find((half) => !isPending(half));
  // Ranks of other processes do not hear of it, and would take the next message for it.
  if (givenUp !== undefined) abandon(host, givenUp);
  // Settled transfers meet no others. In a world of one process only a cancellation settles one that has arrived.
  const isAlone = host.comm.local.length === host.comm.ranks.length;
  const { arrived } = lines;
  const changed = new Set(isAlone ? arrived : lines.batches());
  for (const batch of changed) batch.closeSettled();
  for (const op of lines.takeCancelled()) {
    const batch = lines.batch(op.rank);
    if (batch?.close(op)) changed.add(batch);
  }
  const halves = halvesNow();
  const coming = comeTogether(host, lines, halves);
  if (coming !== undefined) return coming;
  for (const { op } of halves) {
    const batch = lines.batch(op.rank);
    if (batch?.close(op)) changed.add(batch);
  }
  lines.compared(arrived);
  const meetings = takeMeetings(arrived, (rank) => lines.batch(rank));
  for (const { sendBatch, recvBatch } of meetings) changed.add(sendBatch).add(recvBatch);
  const leave = (): boolean => {
    const done = [...changed].filter((batch) => batch.isDone && lines.batch(batch.rank) === batch);
    for (const { rank } of done) lines.leave(rank);
    return done.length > 0;
  };
  if (meetings.length + halves.length === 0) return leave() ? true : undefined;
  const served = serveMeetings(host, lines, meetings, halves);
  if (served instanceof Promise) return served.then(() => void leave());
  leave();
  return true;
}

/**
 * Connects the ranks of messages for the first time, and serves them; `undefined` where all are
 * connected. Until then the messages stand in their lines, where the end of the communicator finds them.
 */
function comeTogether(
  host: ServeHost,
  lines: Lines,
  halves: readonly TransferPosting[],
): Promise<void> | undefined {
  const { comm, session } = host;
  if (session.exchangeBarrier === undefined) return undefined;
  const convening = session.exchangeBarrier(comm, halves);
  if (convening === undefined) return undefined;
  const go = (): unknown => serveTransfers(host, lines);
  const anyway = (): void => {
    const left = halves.filter(({ call }) => !isGone(call));
    void Promise.resolve(session.exchange(comm, [], left)).catch(() => undefined);
  };
  return onceTogether(host, convening, halves, { go, anyway }).then(() => undefined);
}

/** Serves sends with the receives they met, and halves, as one exchange. */
function serveMeetings(
  host: ServeHost,
  lines: Lines,
  meetings: readonly Meeting[],
  halves: readonly TransferPosting[],
): void | Promise<void> {
  const sharedTransfer = sharedTargets(host.comm, meetings, (memory) => lines.sharers(memory));
  const fitting = meetings.filter((meeting) => {
    const errorOf = transferFault(host, meeting) ?? sharedTransfer(meeting);
    if (errorOf === undefined) return true;
    host.later(() => {
      const pair = [meeting.send, meeting.recv];
      const atPs = lastComing(pair);
      for (const posting of pair) failAt(host, posting, errorOf(posting), atPs);
    }, 2);
    return false;
  });
  const kept = keptHalves(host, halves);
  if (fitting.length === 0 && kept.length === 0) return;
  const pairs = fitting.map(({ send, recv }) => [send, recv]);
  const messages = [...pairs, ...kept.map((half) => [half])];
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
    () => submitTransfers(host, transfers, kept, messages),
    () => wake(host, messages),
  );
}

/** Halves with living buffers. One without fails, and the communicator with it: its other end may be under way. */
function keptHalves(host: ServeHost, halves: readonly TransferPosting[]): TransferPosting[] {
  const gone = halves.filter(({ call }) => isGone(call));
  if (gone.length === 0) return [...halves];
  for (const half of gone) host.fail(half, disposedHalf(host.comm, half));
  host.later(() => abandon(host, gone[0] as TransferPosting), 1);
  return halves.filter(({ call }) => !isGone(call));
}

/** The reason why a send and the receive it met are not served, for either side. */
function transferFault(
  { comm, session }: ServeHost,
  meeting: Meeting,
): ((posting: Posting) => CommError) | undefined {
  const fault = transferMismatch(comm, meeting) ?? disposedTransfer(comm, meeting);
  if (fault !== undefined) return fault;
  const written = session.bufferGuard?.findWrite([meeting.send.call, meeting.recv.call]);
  return written && writtenTransfer(comm, written);
}

/** Hands checked transfers to the session; `calls` are their postings, together where they meet. */
function submitTransfers(
  host: ServeHost,
  transfers: readonly Transfer[],
  halves: readonly RemoteTransfer[],
  calls: readonly (readonly Posting[])[],
): Work {
  const { session, comm } = host;
  if (session.enqueueExchange !== undefined) {
    host.queue(calls.flat(), (waiting) => {
      session.enqueueExchange?.(comm, transfers, halves, waiting);
    });
    return queued;
  }
  return submitted(calls, session.exchange(comm, transfers, halves));
}
