/**
 * Dispatches complete calls: compares them, submits them to the session, and gives every rank its result or its error.
 *
 * A set that differs between ranks never reaches the session.
 */
import type { CallSet, PeerBarrier, RankCall, RemoteTransfer, Transfer } from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { isGiven } from "../member/prepared.ts";
import {
  disposedHalf,
  disposedTransfer,
  isGone,
  refuseWritten,
  sharedTargets,
  writtenTransfer,
} from "./buffer-checks.ts";
import {
  callsOf,
  comparedAcross,
  type Mismatch,
  mismatchErrors,
  mismatchOf,
  recordedFault,
  transferMismatch,
} from "./compare.ts";
import { exchangeCounts } from "./exchanges.ts";
import { errorByCall } from "./failures.ts";
import { Agreement } from "./matched-call.ts";
import { type Meeting, openHalves, takeMeetings } from "./messages.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { Lines, Slot } from "./queues.ts";
import {
  abandon,
  attempt,
  failAll,
  failAt,
  failServed,
  isPending,
  lastComing,
  queued,
  type ServeHost,
  submitted,
  type Work,
  wake,
} from "./settle.ts";
import { PostedCall, type QueuedCall } from "./submission.ts";

/** Serves a complete collective call. A promise means that the session is still at it. */
export function serveSlot(host: ServeHost, slot: Slot): void | Promise<void> {
  const postings = slot.posted;
  const givenUp = postings.find((posting) => !isPending(posting));
  if (givenUp !== undefined) {
    // Ranks of other processes do not hear of it, and go on with the call.
    if (postings.length < slot.postings.length) return abandon(host, givenUp);
    const cancelled = postings.flatMap(({ op }) => (op.pending ? [] : [op.rank]));
    failAll(host, postings, ({ op }) => cancelError(slot, cancelled, op.rank));
    return;
  }
  const apart = comparedAcross(host, slot);
  if (apart === undefined) return serveHere(host, slot, postings);
  const serve = (mismatch: Mismatch | undefined): void | Promise<void> => {
    if (mismatch !== undefined) return differ(host, slot, mismatch);
    const late = postings.find((posting) => !isPending(posting));
    return late === undefined ? serveHere(host, slot, postings) : abandon(host, late);
  };
  return apart.then(serve, (error) => {
    const errorOf = errorByCall(error, host);
    for (const posting of postings) {
      host.fail(posting, errorOf(posting));
      abandon(host, posting);
    }
  });
}

/** Dispatches a call on which ranks of other processes agree, as far as calls are compared. */
function serveHere(
  host: ServeHost,
  slot: Slot,
  postings: readonly Posting[],
): void | Promise<void> {
  const known = Agreement.known(postings);
  return known === undefined
    ? serveNew(host, slot, postings)
    : serveKnown(host, slot, postings, known);
}

/** Serves a call that was not made before. */
function serveNew(host: ServeHost, slot: Slot, postings: readonly Posting[]): void | Promise<void> {
  const calls = postings.map(callOf);
  const mismatch = disagreement(host, slot, calls);
  if (mismatch !== undefined) return differ(host, slot, mismatch);
  return perform(host, slot, postings, calls, Agreement.reached(postings, calls));
}

/** Serves a call that all ranks have made before with the same arguments. */
function serveKnown(
  host: ServeHost,
  slot: Slot,
  postings: readonly Posting[],
  known: Agreement,
): void | Promise<void> {
  const { enqueueRepeated, bufferGuard } = host.session;
  const again =
    known.planned !== undefined && enqueueRepeated !== undefined && bufferGuard === undefined;
  if (again && known.stillLives()) {
    return serveAgain(host, new PostedCall(postings), known, slot.number);
  }
  return perform(host, slot, postings, postings.map(callOf), known);
}

/** Has a session queue a call again that it has worked out before; its buffers are all there. */
export function serveAgain(
  host: ServeHost,
  call: QueuedCall,
  known: Agreement,
  number: number,
): void {
  try {
    host.queueAgain(call, known, number);
  } catch (error) {
    failServed(host, call.postings, error);
  }
}

function differ(host: ServeHost, slot: Slot, mismatch: Mismatch): void {
  const errorOf = mismatchErrors(slot, mismatch);
  failAll(host, slot.posted, ({ op }) => errorOf(op.rank));
}

/** The reason why a complete call cannot be served; `undefined` when all ranks agree. */
function disagreement(
  { windows }: ServeHost,
  slot: Slot,
  calls: readonly RankCall[],
): Mismatch | undefined {
  const fault = mismatchOf(slot) ?? windows.join(calls);
  if (fault !== undefined || calls[0]?.collective !== "capture") return fault;
  if (slot.arrived === slot.postings.length) return recordedFault(calls, windows);
  for (const call of calls.flatMap(callsOf)) windows.join([call]);
  return undefined;
}

function callOf({ call }: Posting): RankCall {
  return call;
}

function perform(
  host: ServeHost,
  slot: Slot,
  postings: readonly Posting[],
  calls: readonly RankCall[],
  cache: Agreement,
): void | Promise<void> {
  const { comm, number } = slot;
  const set: CallSet = {
    comm,
    number,
    collective: calls[0]?.collective ?? "barrier",
    calls,
    cache,
  };
  return attempt(
    host,
    postings,
    () => execute(host, set, postings),
    () => {
      const order = host.session.wakeOrder(set);
      wake(host, [order.map((rank) => postings[rank] as Posting)]);
    },
  );
}

function execute(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  const convening = host.session.peerBarrier?.(set);
  if (convening === undefined) return carryOut(host, set, postings);
  const go = (): Work => carryOut(host, set, postings);
  const anyway = (): void => handOver(host, set);
  const done = onceTogether<unknown>(host, convening, postings, { go, anyway });
  return done.then((left) => (postings.every(isPending) ? left : queued));
}

/** Hands over a call that no rank of this process waits for any more. */
function handOver(host: ServeHost, set: CallSet): void {
  const { session } = host;
  if (set.collective === "capture" || set.calls.some(isGone)) return;
  const { cache: _, ...once } = set;
  const isUnknown = set.calls.some((call) => call.recvCounts === undefined);
  if (set.collective === "allToAllv" && isUnknown) {
    void Promise.resolve(exchangeCounts(session, once)).catch(() => undefined);
    return;
  }
  host.prepare(once);
  void Promise.resolve(session.execute(once)).catch(() => undefined);
}

function carryOut(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  const organised = host.organise(set);
  if (organised instanceof Promise) return organised;
  if (organised !== false) return submitted([postings], host.session.onControlCall?.(set));
  if (set.calls.every(isGiven)) return begin(host, set, postings);
  // What is exchanged or allocated for the call is another time another.
  const { cache: _, ...once } = set;
  const unknown = set.calls.some((call) => call.recvCounts === undefined);
  const exchanged = unknown ? exchangeCounts(host.session, once) : undefined;
  if (exchanged instanceof Promise)
    return exchanged.then<unknown>(() => begin(host, once, postings));
  return begin(host, once, postings);
}

/** Hands a set that has all it needs to the session. */
function begin(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  host.prepare(set);
  const written = host.session.bufferGuard?.findWrite(set.calls);
  if (written !== undefined) throw refuseWritten(set, written);
  return submit(host, set, postings);
}

/** Hands a checked set to the session. */
function submit(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  const { session } = host;
  if (session.enqueue !== undefined) {
    host.queue(postings, (waiting) => session.enqueue?.(set, waiting));
    return queued;
  }
  return submitted([postings], session.execute(set));
}

function cancelError(slot: Slot, ranks: readonly number[], rank: number): CommAbortedError {
  return new CommAbortedError(
    {
      headline: `call ${slot.number} on "${slot.comm.name}": ${ranksText(ranks)} cancelled it`,
      hint: "nothing was written; the communicator is still in step",
    },
    { rank, size: slot.postings.length, comm: slot.comm.name, call: slot.number, ranks },
  );
}

// Messages: sends and receives at the heads of their ranks' queues.

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

// The barrier of processes before a call that connects their ranks for the first time.
//
// Submitting such a call would block this process until its peers submit it: no deadline, signal or loss would be noticed.

/** The action on it then. */
interface Then<T> {
  readonly go: () => T;
  /** For others that have come, and are blocked until they meet this process, when no rank here waits for the call any more. */
  readonly anyway: () => void;
}

/**
 * Waits for the others, and goes on. Where a rank of this process has given the call up by then, or one of the others will
 * not come, the communicator is over here.
 */
async function onceTogether<T>(
  host: ServeHost,
  convening: PeerBarrier,
  postings: readonly Posting[],
  { go, anyway }: Then<T>,
): Promise<T | undefined> {
  let together = false;
  try {
    together = await host.coming.wait(convening);
  } catch (error) {
    const errorOf = errorByCall(error, host);
    for (const posting of postings) host.fail(posting, errorOf(posting));
  }
  const givenUp = postings.find((posting) => !isPending(posting));
  if (together && givenUp === undefined) return go();
  try {
    if (together) anyway();
  } catch {
    // Its own call has failed before.
  }
  abandon(host, givenUp ?? (postings[0] as Posting));
  return undefined;
}

/** The meetings of a communicator's calls: one after the other. */
export class ComingTogether {
  #open: AbortController | undefined;

  /** A call is waiting. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** It has been given up: the others hear of it, unless they have come by then. */
  giveUp(): void {
    this.#open?.abort();
  }

  /** Waits for the others; says whether they have come. */
  async wait(convening: PeerBarrier): Promise<boolean> {
    const open = new AbortController();
    this.#open = open;
    try {
      return await convening(open.signal);
    } finally {
      this.#open = undefined;
    }
  }
}
