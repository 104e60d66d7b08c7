/**
 * Serves complete calls: compares them, hands them to the session, and gives every rank its result or its error.
 *
 * A wrong set never reaches the session.
 */
import type { CallSet, RankCall } from "../../backend.ts";
import { ranksText } from "../../error-text.ts";
import { CommAbortedError } from "../../errors.ts";
import { isGiven } from "../../member/prepared.ts";
import { callsOf, comparedAcross } from "../agree/across.ts";
import { Agreement } from "../agree/agreement.ts";
import { type Mismatch, mismatchErrors, mismatchOf } from "../agree/compare.ts";
import { isGone, refuseWritten } from "../agree/lent.ts";
import { recordedFault } from "../agree/recorded.ts";
import type { Posting } from "../calls/posting.ts";
import type { Slot } from "../calls/slot.ts";
import { errorByCall } from "../calls/unserved.ts";
import { PostedCall, type QueuedCall } from "./call-queue.ts";
import { exchangeCounts } from "./counts-exchange.ts";
import { onceTogether } from "./once-together.ts";
import {
  abandon,
  attempt,
  failAll,
  failServed,
  isPending,
  queued,
  submitted,
  type Work,
  wake,
} from "./outcomes.ts";
import type { ServeHost } from "./serve-host.ts";

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
