/**
 * The deadlines of open calls where time is real, and the errors of calls that miss them.
 *
 * Nearly all calls complete in time, so that a deadline must be cheap. It is one entry of a set, and leaves it when its call
 * settles. One timer is set for the earliest deadline; when it rings, all open ones are looked at.
 */

import type { CommInfo, JobSession, MissingRanks } from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { type CallOrder, CommTimeoutError } from "../errors.ts";
import type { OpDeadline, Operation } from "../op.ts";
import { oddRanks, orderHint, orderRows, orderText } from "./deadlock/report.ts";
import { postedFacts } from "./failures.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { RankQueues } from "./queues.ts";
import { longestTimerMs } from "./turns.ts";

/** Calls that were made together. */
interface PostedCalls {
  /** A repeated call has its posting made where it is read. */
  readonly postings: readonly Posting[];
}

/** When an open call must be done. */
interface Deadline extends OpDeadline {
  readonly op: Operation;
  readonly calls: PostedCalls;
  /** In the time of `performance.now()`. */
  readonly dueMs: number;
}

/** Watches the deadlines of one communicator's calls. */
export class Deadlines {
  /** Deals with a call that was not done in time; resolves when it has. */
  readonly #expire: (posting: Posting) => Promise<void>;
  readonly #alarm = new Alarm(() => this.#check());
  readonly #open = new Set<Deadline>();

  constructor(expire: (posting: Posting) => Promise<void>) {
    this.#expire = expire;
  }

  /** Watches a call from now on; a call without a deadline is not watched. */
  watch(posting: Posting): void {
    const { op, timeoutMs = Infinity } = posting;
    if (timeoutMs < Infinity) this.watchOp(op, timeoutMs, { postings: [posting] });
  }

  /** Watches the operation of one of these calls. */
  watchOp(op: Operation, timeoutMs: number, calls: PostedCalls): void {
    // The operation of a `sendRecv` has two ends.
    if (op.deadline !== undefined) return;
    const nowMs = performance.now();
    const settled = (): void => this.#remove(deadline);
    const deadline: Deadline = { op, calls, dueMs: nowMs + timeoutMs, settled };
    this.#open.add(deadline);
    op.deadline = deadline;
    this.#alarm.ringBy(deadline.dueMs, nowMs);
  }

  /** A deadline is open no longer. */
  #remove(deadline: Deadline): void {
    if (this.#open.delete(deadline) && this.#open.size === 0) this.#alarm.rest();
  }

  #check(): void {
    const nowMs = performance.now();
    const due: Deadline[] = [];
    let nextMs = Infinity;
    for (const deadline of this.#open) {
      if (deadline.dueMs > nowMs) nextMs = Math.min(nextMs, deadline.dueMs);
      else due.push(deadline);
    }
    for (const deadline of due) this.#remove(deadline);
    if (nextMs < Infinity) this.#alarm.ringBy(nextMs, nowMs);
    const expire = (): void => {
      void this.#expireInTurn(due.sort((a, b) => a.dueMs - b.dueMs));
    };
    // After a long computation of the program, calls are due that are done: they settle in this turn, before the check.
    if (typeof setImmediate === "function") setImmediate(expire);
    else expire();
  }

  /** One after the other: the first that is still open mostly ends the communicator, and the others with it. */
  async #expireInTurn(due: readonly Deadline[]): Promise<void> {
    for (const { op, calls } of due) {
      if (!op.pending) continue;
      const settled = new Promise<unknown>((resolve) => op.whenSettled(resolve));
      // Of a `sendRecv` that of its first end.
      const posting = calls.postings.find((each) => each.op === op) as Posting;
      await Promise.race([this.#expire(posting), settled]);
    }
  }
}

// A timer that is set again and again, mostly for a later time than before.
//
// Starting and stopping a timer costs as much as a small call. An unneeded timer stays set but unreferenced, if the runtime
// supports that. It then does not keep the process alive, and is referenced again for a deadline that it serves.

/** A runtime's timer; some runtimes give a number. */
interface Timer {
  ref?(): unknown;
  unref?(): unknown;
}

/**
 * Rings once for each request; it may ring too early, and is then set again.
 *
 * @internal
 */
export class Alarm {
  readonly #ring: () => void;
  #timer: Timer | number | undefined;
  /** When the timer comes due; never without one. */
  #dueMs = Infinity;
  #rests = true;

  constructor(ring: () => void) {
    this.#ring = ring;
  }

  /** Rings at `atMs` of `performance.now()` or before, unless it rests until then. */
  ringBy(atMs: number, nowMs: number): void {
    const isEarly = this.#dueMs <= atMs;
    if (isEarly && !this.#rests) return;
    if (isEarly) wake(this.#timer);
    else this.#set(atMs, nowMs);
    this.#rests = false;
  }

  /** No call is due any more. */
  rest(): void {
    this.#rests = true;
    if (!sleep(this.#timer)) this.#stop();
  }

  #set(atMs: number, nowMs: number): void {
    this.#stop();
    const delayMs = Math.min(Math.max(1, Math.ceil(atMs - nowMs)), longestTimerMs);
    this.#dueMs = nowMs + delayMs;
    this.#timer = setTimeout(() => this.#due(), delayMs);
  }

  #stop(): void {
    if (this.#timer !== undefined) clearTimeout(this.#timer as number);
    this.#timer = undefined;
    this.#dueMs = Infinity;
  }

  #due(): void {
    const rests = this.#rests;
    this.#timer = undefined;
    this.#dueMs = Infinity;
    this.#rests = true;
    if (!rests) this.#ring();
  }
}

/** False where the runtime's timers cannot rest. */
function sleep(timer: Timer | number | undefined): boolean {
  if (typeof timer !== "object" || timer.ref === undefined || timer.unref === undefined)
    return false;
  timer.unref();
  return true;
}

function wake(timer: Timer | number | undefined): void {
  if (typeof timer === "object") timer.ref?.();
}

// The cause of a timeout, and its error. Ranks are those of the communicator.

/** A communicator with calls that are not done: queued ones, and those submitted to the session. */
interface LateComm {
  readonly job: JobSession | undefined;
  readonly comm: CommInfo;
  readonly queues: RankQueues;
  readonly submitted: { submittedWith(posting: Posting): readonly Posting[] };
}

/** The ranks of world ranks on a communicator that they are members of. */
function commRanks({ ranks }: CommInfo, worldRanks: readonly number[]): readonly number[] {
  const own = new Map(ranks.map((worldRank, rank) => [worldRank, rank]));
  return worldRanks.map((worldRank) => own.get(worldRank) ?? -1);
}

/** The ranks that a late call waited for, and the text about them. */
export interface TimeoutCause {
  readonly ranks: readonly number[];
  readonly why: string;
  /** The remedy, where it is neither to look at those ranks nor to wait longer. */
  readonly remedy?: string;
  /** The orders of calls that wait for each other. */
  readonly orders?: readonly CallOrder[];
}

/** The cause where these ranks have not made the call, or do not answer (`silent`); without any, its work takes long. */
export function missingCause(
  ranks: readonly number[],
  silent: readonly number[] = [],
): TimeoutCause {
  const late = ranks.filter((rank) => !silent.includes(rank));
  const parts = [
    ...(late.length > 0 ? [`${ranksText(late)} had not made it`] : []),
    ...(silent.length > 0 ? [`${ranksText(silent)} did not answer, busy or lost`] : []),
  ];
  return { ranks, why: parts.join(", ") || "all ranks had made it" };
}

/** The cause of a timeout of a waiting call, where all ranks are in this process. */
export function waitCause(comm: CommInfo, queues: RankQueues, rank: number): TimeoutCause {
  const head = queues.head(rank);
  if (head !== undefined && head.comm !== comm) return behindEarlierCall;
  return missingCause(commRanks(comm, queues.missing(rank)));
}

/** The cause of a timeout among calls of several communicators that wait for each other. */
export function orderCause(orders: readonly CallOrder[]): TimeoutCause {
  return { ranks: oddRanks(orders), why: orderText(orders), remedy: orderHint, orders };
}

/** The cause of a timeout; in a job of several processes it queries the others. */
export async function timeoutCause(
  { job, comm, queues, submitted }: LateComm,
  posting: Posting,
): Promise<TimeoutCause> {
  const { op } = posting;
  const isWaiting = op.status === "waiting";
  if (comm.local.length === comm.ranks.length) {
    return isWaiting ? waitCause(comm, queues, op.rank) : missingCause([]);
  }
  const here = isWaiting ? queues.missing(op.rank) : [];
  const isBehind = isWaiting && !queues.isAtHead(op);
  const { peer } = posting as Partial<TransferPosting>;
  if (peer === undefined) {
    const local: MissingRanks = { ranks: here, haveDiverged: false };
    const found = (await job?.peers.missingRanks(comm, op.call)) ?? local;
    const { ranks, silent = [], haveDiverged } = found;
    if (haveDiverged) return diverged;
    return ranks.length === 0 && isBehind
      ? behindEarlierCall
      : missingCause(commRanks(comm, ranks), commRanks(comm, silent));
  }
  const isOwn = comm.local.includes(peer);
  if (isOwn && isWaiting && !isBehind && lacksOwnEnd(queues, op.rank)) return missingCause([peer]);
  const together = [
    ...queues.batchOf(posting),
    ...submitted.submittedWith(posting),
  ] as TransferPosting[];
  const remote = together.filter((end) => !comm.local.includes(end.peer));
  // A message of a rank to itself waits with those that were made with it.
  const other = isOwn ? remote[0]?.peer : peer;
  if (other === undefined) return isBehind ? behindEarlierCall : missingCause([]);
  const found = await job?.peers.missingEnds(comm, remote);
  const missing = found && commRanks(comm, found.ranks);
  // A call behind an earlier one is not dispatched yet: to the others this rank is the missing one.
  const isUpToUs = missing?.every((rank) => rank === op.rank) === true;
  return isUpToUs && isBehind
    ? behindEarlierCall
    : messageTimeoutCause(other, missing, commRanks(comm, found?.silent ?? []));
}

/** True where a rank's messages to itself at the head of its stream have not all got both ends. */
function lacksOwnEnd(queues: RankQueues, rank: number): boolean {
  const batch = queues.batch(rank);
  return batch?.openCount("send", rank) !== batch?.openCount("recv", rank);
}

const behindEarlierCall: TimeoutCause = {
  ranks: [],
  why: "an earlier call of this rank kept it waiting",
  remedy: "give that one a deadline of its own, and its error names the missing ranks",
};

const diverged: TimeoutCause = {
  ranks: [],
  why: "all ranks made the call, but its setup did not complete: one rank cancelled, or counts or symmetric allocations differ",
  remedy:
    'if no rank cancelled, compare counts and buffers; nccl({ compareCalls: "always" }) reports differences before the call',
};

/** The cause of a timeout of a message; `missing`: ranks that it and the messages made with it lack, if they are known. */
function messageTimeoutCause(
  peer: number,
  missing: readonly number[] | undefined,
  silent: readonly number[],
): TimeoutCause {
  if (missing === undefined) return missingCause([peer], [peer]);
  if (missing.length === 0) {
    const why = `rank ${peer} had made it too: it is slow, was given up there, or waits behind other calls`;
    return { ranks: [peer], why };
  }
  const isPeer = missing.length === 1 && missing[0] === peer;
  // Messages that were made together wait for each other, and may wait for ranks that wait for third ones.
  return isPeer
    ? missingCause(missing, silent)
    : { ranks: missing, why: `${ranksText(missing)} kept it waiting` };
}

/** The error of a call that was not done in time. */
export function timeoutError(
  comm: CommInfo,
  posting: Posting,
  { ranks, why, remedy = nextStep(comm, ranks), orders }: TimeoutCause,
  isVirtual: boolean,
): CommTimeoutError {
  const { op, call, timeoutMs } = posting;
  const step = isVirtual ? "virtual time counts on the simulation" : remedy;
  return new CommTimeoutError(
    {
      headline: `${call.collective}: call ${op.call} on "${comm.name}" was not done within ${timeoutMs} ms: ${why}`,
      table: orders && orderRows(orders),
      hint: `the communicator was aborted; ${step}`,
    },
    { ...postedFacts(comm, posting), ranks },
  );
}

/** The remedy where time is real. Logs and processes go by the ranks of the world. */
function nextStep({ ranks, local }: CommInfo, missing: readonly number[]): string {
  const isJob = local.length < ranks.length;
  if (missing.length === 0) {
    const long =
      "its work, or that of a call right behind it, took longer: allow more with timeoutMs, or look at what else the devices and the network are busy with";
    return isJob ? `${long}; compareCalls: "always" names ranks with different calls` : long;
  }
  const those = ranksText(missing.map((rank) => ranks[rank] as number));
  return isJob
    ? `look at the logs of ${those} of the job, then go on with the survivors by comm.rebuild()`
    : `look at what ${those} of the world did instead, then go on with world.rebuild()`;
}
