/**
 * Serves complete calls: compares them, hands them to the session, and gives every rank its result or its error.
 *
 * A wrong set never reaches the session.
 */
import type {
  CallSet,
  CommInfo,
  HalfTransfer,
  RankCall,
  Session,
  Transfer,
  Waiting,
} from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { isGiven } from "../member/prepared.ts";
import { callsOf, comparedAcross } from "./across.ts";
import { Agreement } from "./agreement.ts";
import type { Batch, Meeting } from "./batch.ts";
import { PostedCall, type QueuedCall } from "./call-queue.ts";
import { type Mismatch, mismatchError, mismatchOf, transferMismatch } from "./compare.ts";
import { exchangeCounts } from "./counts-exchange.ts";
import { disposedTransfer, isGone, refuseWritten, writtenTransfer } from "./lent.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import { recordedFault } from "./recorded.ts";
import type { Slot } from "./slot.ts";
import { sharedTransfer } from "./targets.ts";
import { errorByCall } from "./unserved.ts";
import type { Windows } from "./windows.ts";

/** What serving needs from the ledger and its world. */
export interface ServeHost {
  readonly session: Session;
  readonly comm: CommInfo;
  readonly windows: Windows;
  /** Prepares a complete set: allocates what could not be known before. Throws when it cannot be served. */
  prepare(set: CallSet): void;
  /** Serves a call that changes communicators instead of data; false when it is none. */
  organise(set: CallSet): void | Promise<void> | false;
  fail(posting: Posting, error: unknown): void;
  /** Runs `settle` once every rank that was about to wait does so: only then does the order of waking count. */
  later(settle: () => void): void;
  /** Has calls handed to a session that queues them, and settles them when it is done. */
  queue(postings: readonly Posting[], hand: (waiting: Waiting) => void): void;
  /** The same for a call that the session has worked out before. */
  queueAgain(call: QueuedCall, known: Agreement, number: number): void;
  /** A rank has given up a call that those of other processes go on with: here the communicator is over. */
  abandon(posting: Posting): void;
  /** A call took longer than its deadline. */
  overdue(posting: Posting, missing: readonly number[]): void;
}

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
    for (const posting of postings) {
      host.fail(posting, error);
      abandon(host, posting);
    }
  });
}

/** Whatever its session has of the communicator goes too. */
function abandon(host: ServeHost, posting: Posting): void {
  host.abandon(posting);
  host.session.abort?.(host.comm, posting.op.error);
}

/** Serves a call on which ranks of other processes agree, as far as they are asked. */
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
  const { enqueueAgain, lending } = host.session;
  const again = known.work !== undefined && enqueueAgain !== undefined && lending === undefined;
  if (again && !known.calls.some(isGone)) {
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
  failAll(host, slot.posted, ({ op }) => mismatchError(slot, mismatch, op.rank));
}

/** What keeps a complete call from being served; `undefined` when all ranks mean the same. */
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

function isPending({ op }: Posting): boolean {
  return op.pending;
}

function callOf({ call }: Posting): RankCall {
  return call;
}

/** Serves sends with the receives they met, and halves, as one exchange; `batches` are all that could meet now. */
export function serveMeetings(
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
  if (fitting.length === 0 && halves.length === 0) return;
  const pairs = fitting.map(({ send, recv }) => [send, recv]);
  const messages = [...pairs, ...halves.map((half) => [half])];
  const transfers: Transfer[] = fitting.map(({ send, recv, ...joined }) => ({
    send: send.call,
    recv: recv.call,
    ...joined,
  }));
  return attempt(
    host,
    messages.flat(),
    () => submitTransfers(host, transfers, halves, messages),
    () => wake(host, messages),
  );
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

function perform(
  host: ServeHost,
  slot: Slot,
  postings: readonly Posting[],
  calls: readonly RankCall[],
  kept: Agreement,
): void | Promise<void> {
  const { comm, number } = slot;
  const set: CallSet = { comm, number, collective: calls[0]?.collective ?? "barrier", calls, kept };
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
  const organised = host.organise(set);
  if (organised instanceof Promise) return organised;
  if (organised !== false) return submitted([postings], host.session.organised?.(set));
  if (set.calls.every(isGiven)) return begin(host, set, postings);
  // What is exchanged or allocated for the call is another time another.
  const { kept: _, ...once } = set;
  const unknown = set.calls.some((call) => call.recvCounts === undefined);
  const exchanged = unknown ? exchangeCounts(host.session, once) : undefined;
  if (exchanged instanceof Promise)
    return exchanged.then<unknown>(() => begin(host, once, postings));
  return begin(host, once, postings);
}

/** Hands a set that has all it needs to the session. */
function begin(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  host.prepare(set);
  const written = host.session.lending?.writer(set.calls);
  if (written !== undefined) throw refuseWritten(set, written);
  return submit(host, set, postings);
}

/** What serving leaves behind when a session has queued the calls: the ledger goes on while they are at work. */
const queued = Symbol("queued");

/** What serving leaves behind: nothing, something to wait for, or queued calls. */
type Work = undefined | typeof queued | Promise<unknown>;

/** Hands a checked set to the session. */
function submit(host: ServeHost, set: CallSet, postings: readonly Posting[]): Work {
  const { session } = host;
  if (session.enqueue !== undefined) {
    host.queue(postings, (waiting) => session.enqueue?.(set, waiting));
    return queued;
  }
  return submitted([postings], session.execute(set));
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

/** The session has taken these calls and messages. */
function submitted(
  calls: readonly (readonly Posting[])[],
  done: void | Promise<void>,
): undefined | Promise<void> {
  for (const postings of calls) {
    const atPs = lastComing(postings);
    for (const { op } of postings) {
      op.submittedAtPs = atPs;
      op.submit();
    }
  }
  return done instanceof Promise ? done : undefined;
}

/** Virtual time at which the last rank made a call; before that, no rank can know of it. */
function lastComing(postings: readonly Posting[]): number {
  let last = 0;
  for (const { call } of postings) last = Math.max(last, call.postedAtPs);
  return last;
}

/** Runs `work`, then `settled`; what goes wrong becomes the error of every posting. */
function attempt(
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
function wake(host: ServeHost, calls: readonly (readonly Posting[])[]): void {
  const inTime = calls.some((call) => call.some(isLate)) ? refuseLate(host, calls) : calls;
  host.later(() => {
    for (const postings of inTime) {
      for (const { op, call, prepared } of postings) {
        op.finishedAtPs = call.finishedAtPs;
        op.complete(prepared.resultOf(call));
      }
    }
  });
}

/** Fails the calls whose deadline has passed; gives the others. */
function refuseLate(
  host: ServeHost,
  calls: readonly (readonly Posting[])[],
): readonly (readonly Posting[])[] {
  const late = calls.flatMap((call) => call.filter(isLate).map((posting) => ({ posting, call })));
  // The deadline that passes first aborts the communicator, whoever is woken first.
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
  const isAlone = local.length === ranks.length || first?.call.collective === "capture";
  if (first !== undefined && !isAlone) host.later(() => abandon(host, first));
}

/** Fails every rank of a call, once those that were about to await it do. */
function failAll(
  host: ServeHost,
  postings: readonly Posting[],
  errorOf: (posting: Posting) => unknown,
): void {
  const atPs = lastComing(postings);
  host.later(() => {
    for (const posting of postings) failAt(host, posting, errorOf(posting), atPs);
  });
}

function failAt(host: ServeHost, posting: Posting, error: unknown, atPs: number): void {
  if (posting.op.pending) posting.op.finishedAtPs = atPs;
  host.fail(posting, error);
}

/** Ranks that made a call only after a deadline. */
function latecomers(postings: readonly Posting[], deadlinePs: number): number[] {
  return postings.flatMap(({ call }) => (call.postedAtPs > deadlinePs ? [call.rank] : []));
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
