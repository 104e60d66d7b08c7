/** Sends and receives that have come to the head of their ranks' lines. */
import type { HalfTransfer, Transfer } from "../../backend.ts";
import type { CommError } from "../../errors.ts";
import { transferMismatch } from "../agree/compare.ts";
import { disposedHalf, disposedTransfer, isGone, writtenTransfer } from "../agree/lent.ts";
import { sharedTransfer } from "../agree/targets.ts";
import { type Batch, type Meeting, openHalves, takeHalves, takeMeetings } from "../calls/batch.ts";
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

/** Serves those that meet, and halves whose other end is elsewhere. `undefined`: there are none; true: served. */
export function serveTransfers(host: ServeHost, lines: Lines): true | Promise<void> | undefined {
  if (!lines.haveTransfers) return undefined;
  const batches = lines.batches();
  const givenUp = openHalves(host.comm, batches).find((half) => !isPending(half));
  // Ranks of other processes do not hear of it, and would take the next message for it.
  if (givenUp !== undefined) abandon(host, givenUp);
  for (const batch of batches) {
    // A cancelled transfer no longer meets anyone.
    if (batch !== undefined) batch.open = batch.open.filter(({ op }) => op.pending);
  }
  const coming = comeTogether(host, lines, batches);
  if (coming !== undefined) return coming;
  const halves = takeHalves(host.comm, batches);
  const meetings = takeMeetings(batches);
  const leave = (): boolean[] =>
    batches.map((batch, rank) => {
      const done = batch?.open.length === 0 && lines.head(rank) === batch;
      if (done) lines.leave(rank);
      return done;
    });
  if (meetings.length + halves.length === 0) return leave().includes(true) ? true : undefined;
  const served = serveMeetings(host, meetings, halves, batches);
  if (served instanceof Promise) return served.then(() => void leave());
  leave();
  return true;
}

/**
 * Brings together the ranks that messages connect for the first time, and serves them; `undefined` where nobody is waited
 * for. Until then the messages stand in their lines, where those who end the communicator find them.
 */
function comeTogether(
  host: ServeHost,
  lines: Lines,
  batches: readonly (Batch | undefined)[],
): Promise<void> | undefined {
  const { comm, session } = host;
  if (session.conveneExchange === undefined) return undefined;
  const halves = openHalves(comm, batches);
  const convening = session.conveneExchange(comm, halves);
  if (convening === undefined) return undefined;
  const go = (): unknown => serveTransfers(host, lines);
  const anyway = (): void => {
    const left = halves.filter(({ call }) => !isGone(call));
    void Promise.resolve(session.exchange(comm, [], left)).catch(() => undefined);
  };
  return onceTogether(host, convening, halves, { go, anyway }).then(() => undefined);
}

/** Serves sends with the receives they met, and halves, as one exchange; `batches` are all that could meet now. */
function serveMeetings(
  host: ServeHost,
  meetings: readonly Meeting[],
  halves: readonly TransferPosting[],
  batches: readonly (Batch | undefined)[],
): void | Promise<void> {
  const fitting = meetings.filter((meeting) => {
    const errorOf = transferFault(host, meeting) ?? sharedTransfer(host.comm, meeting, batches);
    if (errorOf === undefined) return true;
    host.later(() => {
      const pair = [meeting.send, meeting.recv];
      const atPs = lastComing(pair);
      for (const posting of pair) failAt(host, posting, errorOf(posting), atPs);
    });
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

/** Halves whose buffers are there. One that has none fails, and the communicator with it: its other end may be under way. */
function keptHalves(host: ServeHost, halves: readonly TransferPosting[]): TransferPosting[] {
  const gone = halves.filter(({ call }) => isGone(call));
  if (gone.length === 0) return [...halves];
  for (const half of gone) host.fail(half, disposedHalf(host.comm, half));
  host.later(() => abandon(host, gone[0] as TransferPosting));
  return halves.filter((half) => !gone.includes(half));
}

/** Why a send and the receive it met are not served, as either side is told. */
function transferFault(
  { comm, session }: ServeHost,
  meeting: Meeting,
): ((posting: Posting) => CommError) | undefined {
  const fault = transferMismatch(comm, meeting) ?? disposedTransfer(comm, meeting);
  if (fault !== undefined) return fault;
  const written = session.lending?.writer([meeting.send.call, meeting.recv.call]);
  return written && writtenTransfer(comm, written);
}

/** Hands checked transfers to the session; `calls` are their postings, together where they meet. */
function submitTransfers(
  host: ServeHost,
  transfers: readonly Transfer[],
  halves: readonly HalfTransfer[],
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
