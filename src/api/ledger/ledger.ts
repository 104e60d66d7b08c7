/**
 * The call ledger of one communicator: ranks post calls, the ledger matches them and dispatches complete ones, one at a time.
 *
 * The calls of a rank are dispatched in program order. A collective call is dispatched at the head of all ranks' queues, a send
 * and its receive at the head of both. A wrong call fails on every rank and is then over, so the communicator stays in step and
 * usable.
 */
import { asJobSession, type CommInfo, isQueueing, type VirtualClock } from "../backend.ts";
import type { CommError } from "../errors.ts";
import { invariant } from "../invariant.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CallContext, Operation, Resumption } from "../op.ts";
import { SymmetricWindows } from "./compare.ts";
import {
  Deadlines,
  firstDue,
  missingRanks,
  type TimeoutCause,
  timeoutCause,
  timeoutError,
} from "./deadlines.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import { BarrierWait, dispatchCollective, dispatchMessages } from "./dispatch.ts";
import {
  announceAbort,
  type CallLabel,
  type Cancellation,
  errorsByCall,
  Failures,
  PerRankError,
  type Termination,
  terminationAfter,
} from "./failures.ts";
import { MessageBatch } from "./messages.ts";
import { type CallBatches, callBatches, repeatedPosting, supportsRepeats } from "./persistent.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import {
  CallNumbers,
  headWait,
  type OpenWait,
  openWaits,
  PendingCollectives,
  RankQueues,
} from "./queues.ts";
import type { DispatchHost } from "./settle.ts";
import { type Submission, type SubmissionOrder, SubmissionQueue } from "./submission.ts";
import { IdleGate, type ReadyQueue, type WakeUps } from "./wake-ups.ts";

/** The world's side of a ledger. */
export interface LedgerHost extends Pick<DispatchHost, "session" | "split"> {
  /** An operation of this ledger has failed unobserved. */
  onUnobservedFailure(ledger: Ledger): void;
  /** Wakes the ranks of all its ledgers. */
  readonly wakeUps: WakeUps;
  /** Present where ranks resume one at a time. */
  readonly readyQueue: ReadyQueue | undefined;
}

/** Matches the calls of all ranks of one communicator. */
export class Ledger {
  readonly comm: CommInfo;
  readonly contexts: CallContexts;
  readonly #dispatch: DispatchHost;
  readonly #monitor: Monitor;
  readonly #queues: RankQueues;
  readonly callNumbers: CallNumbers;
  readonly #collectives: PendingCollectives;
  #executing = false;
  readonly #supportsRepeats: boolean;
  /** Calls that the session has queued. */
  readonly #submitted: SubmissionQueue;
  /** Batches of repeated calls. */
  readonly batches: CallBatches;
  /** Where time is real. */
  readonly #deadlines: Deadlines | undefined;
  readonly #idleGate: IdleGate;
  readonly #readyQueue: ReadyQueue | undefined;
  /** Where this process has one rank of several. */
  readonly #order: SubmissionOrder | undefined;
  /** So many of its calls have had their turn. */
  #granted = 0;
  #termination: Termination | undefined;
  /** The failed calls of each rank; an unobserved one makes every later call fail too. */
  readonly failures: Failures;

  constructor(comm: CommInfo, monitor: Monitor, host: LedgerHost, order?: SubmissionOrder) {
    this.comm = comm;
    this.#order = order;
    this.#readyQueue = host.readyQueue;
    this.#idleGate = new IdleGate(monitor, host.wakeUps, () => this.#isIdle);
    this.#monitor = monitor;
    this.#queues = new RankQueues(comm);
    this.#collectives = new PendingCollectives(comm);
    this.#submitted = new SubmissionQueue(monitor, (call, error) =>
      this.#onSubmissionDone(call, error),
    );
    const { session } = host;
    const { clock } = session.scheduler;
    this.failures = new Failures(comm, () => this.#onUnobservedFailure(host));
    this.contexts = new CallContexts(
      comm,
      monitor,
      clock,
      (op) => this.failures.record(op),
      host.readyQueue,
    );
    this.#deadlines = clock ? undefined : new Deadlines((posting) => this.#expire(posting));
    this.callNumbers = new CallNumbers(comm);
    this.#supportsRepeats = supportsRepeats(session);
    this.#dispatch = {
      session,
      queueing: isQueueing(session) ? session : undefined,
      job: asJobSession(session),
      comm,
      windows: new SymmetricWindows(),
      barrier: new BarrierWait(),
      split: (set) => host.split(set),
      fail: (posting, error) => this.failures.fail(posting.op, error),
      settleLater: (settle, work) => this.#idleGate.afterMicrotasks(settle, work),
      enqueue: (call, submit) => this.#submitted.add(call, submit),
      abandon: ({ op }) => this.#abortAfter(op, op.error as CommError, "gave up"),
      timeOut: (posting, missing) => this.timeOut(posting, missingRanks(missing)),
    };
    this.batches = callBatches(comm, {
      dispatch: this.#dispatch,
      numbers: this.callNumbers,
      watchDeadline: (posting) => this.#deadlines?.watch(posting),
      enqueue: (rank, posting, number) => this.#enqueue(rank, posting, number),
    });
  }

  /** True when some rank has calls that are not done. */
  get busy(): boolean {
    return !this.#queues.empty || this.#submitted.size > 0;
  }

  /** Takes a rank's next collective call. */
  post(rank: number, posting: Posting): void {
    this.batches.seal();
    if (!this.#admit(rank, posting)) return;
    this.#enqueue(rank, posting, this.callNumbers.assignCollective(rank, posting.op));
  }

  /** Pushes a rank's call on its queue. */
  #enqueue(rank: number, posting: Posting, number: number): void {
    const pending = this.#collectives.at(number);
    invariant(pending.postings[rank] === undefined, "a rank posts a call once");
    pending.postings[rank] = posting;
    pending.arrived++;
    this.#queues.push(rank, pending);
    this.#deadlines?.watch(posting);
    this.#monitor.noteActivity();
    if (pending.complete) this.#dispatchReady();
  }

  /**
   * Takes a rank's next call, one that it has made before with the same arguments; where time is virtual, now. A batch takes it
   * where one can begin. False where the session needs further data on it: then it must be posted as a new call.
   */
  postRepeated(
    prepared: Prepared<unknown>,
    op: Operation,
    timeoutMs: number | undefined,
    nowPs: number | undefined,
    calledAtPs: number | undefined,
  ): boolean {
    if (!this.#supportsRepeats || prepared.rankCall === undefined) return false;
    const { rank } = op;
    const posting = repeatedPosting(prepared, op, timeoutMs, nowPs, calledAtPs);
    if (!this.#admit(rank, posting)) return true;
    if (nowPs === undefined && this.#isNext && this.batches.begin(rank, posting, timeoutMs))
      return true;
    this.batches.seal();
    this.#enqueue(rank, posting, this.callNumbers.assignCollective(rank, op));
    return true;
  }

  /** Nothing is open, and the next call is dispatched at once. */
  get #isNext(): boolean {
    return this.#queues.empty && !this.#executing && this.#order?.isBlocked !== true;
  }

  /** Takes sends and receives of a rank that match their counterparts in any order. */
  postMessages(rank: number, transfers: readonly TransferPosting[]): void {
    this.batches.seal();
    const admitted = transfers.filter((transfer) => this.#admit(rank, transfer));
    if (admitted.length === 0) return;
    this.callNumbers.assignMessages(rank, admitted);
    this.#queues.push(rank, new MessageBatch(rank, admitted));
    for (const transfer of admitted) this.#deadlines?.watch(transfer);
    this.#monitor.noteActivity();
    this.#dispatchReady();
  }

  /** Fails an operation that was never posted; unless someone awaits it, it poisons the rank. */
  refuse(op: Operation, error: unknown): void {
    this.failures.fail(op, error);
  }

  /** A rank's calls that have not settled. */
  pending(rank: number): Posting[] {
    const queued = this.#submitted.postings().filter(({ op }) => op.rank === rank);
    return [...queued, ...this.#queues.postings(rank)].filter(({ op }) => op.pending);
  }

  /**
   * Takes back a call that is still waiting for other ranks; they fail when they make it. One that was submitted, or that
   * other processes know of, cannot be taken back: it fails, and the communicator with it.
   */
  cancel(op: Operation, errorOf: (how: Cancellation) => CommError): void {
    if (!op.pending) return;
    const wasSubmitted = op.status === "submitted";
    const isAwaited = this.#isDistributed && this.#executing && this.#queues.isAtHead(op);
    const begun = wasSubmitted || isAwaited;
    const error = errorOf({ wasSubmitted, endsAll: begun || this.#isDistributed });
    this.failures.fail(op, error);
    this.#queues.cancel(op);
    if (begun) this.#abortAfter(op, error, "was cancelled in");
    this.#monitor.noteActivity();
    if (this.#order === undefined) this.#dispatchAll();
    else this.#order.request(this.#dispatchGranted);
  }

  /** A call was not done in time: it fails, and the communicator with it. */
  timeOut(posting: Posting, cause: TimeoutCause): void {
    const error = timeoutError(this.comm, posting, cause, this.#deadlines === undefined);
    posting.op.finishedAtPs = posting.deadlinePs ?? 0;
    this.failures.fail(posting.op, error);
    this.#abortAfter(posting.op, error, "timed out in");
  }

  #abortAfter(op: Operation, cause: CommError, what: string): void {
    this.abort(terminationAfter(this.comm, op, cause, what), op.finishedAtPs);
  }

  /**
   * Ends the communicator, at a virtual time if one is known, and gives up what its session has queued where that can
   * be done.
   */
  abort(termination: Termination, atPs = 0): void {
    const { session, job, barrier } = this.#dispatch;
    const isFirst = this.#termination === undefined;
    if (isFirst) announceAbort(job?.peers, this.comm, termination);
    // Ranks of other processes may be at what is open here, or wait for what will not be made.
    const isAwaited = this.#isDistributed && (isFirst || !this.#queues.empty);
    this.terminate(termination, atPs);
    // What is executed before a call is queued, such as an exchange of counts, may hang as well.
    const isBusy = this.#submitted.size > 0 || this.#executing;
    if (!(isBusy || isAwaited)) return;
    for (const posting of this.#submitted.postings()) {
      const { op } = posting;
      this.failures.fail(op, termination(op.rank, op.callingRank, this.#labelOf(posting)));
    }
    const refuse = (rank: number, posting: Posting): CommError =>
      termination(rank, this.comm.ranks[rank] as number, this.#labelOf(posting));
    if (barrier.isOpen) barrier.cancel();
    else session.abort(this.comm, new PerRankError(refuse));
  }

  /**
   * Ends the communicator: open calls and all later ones fail, at a virtual time if one is known. A call that is being
   * executed still finishes.
   */
  terminate(termination: Termination, atPs = 0): void {
    this.batches.seal();
    if (this.#termination !== undefined) return;
    this.#termination = termination;
    this.comm.ranks.forEach((_, rank) => {
      for (const posting of this.#queues.postings(rank)) {
        const { op } = posting;
        if (op.status !== "waiting") continue;
        op.finishedAtPs = atPs;
        this.failures.fail(op, termination(rank, op.callingRank, this.#labelOf(posting)));
      }
    });
    if (!this.#executing) this.#queues.clear();
    this.#collectives.clear();
  }

  /** Back to call 0 on every rank, as new. */
  reset(): void {
    invariant(this.#isIdle, "a ledger is reset when nothing runs");
    this.batches.seal();
    this.#termination = undefined;
    this.#queues.clear();
    this.#collectives.clear();
    this.callNumbers.reset();
    this.failures.clear();
  }

  /** Resolves when no complete call is being executed or about to wake its ranks. */
  drained(): Promise<void> {
    return this.#idleGate.idle();
  }

  /** The wait of a rank at the head of its queue; `undefined` when it has no open call. */
  headWait(rank: number): OpenWait | undefined {
    return headWait(this.comm, this.#queues, rank);
  }

  /** The waits through every rank's end. */
  waits(): OpenWait[] {
    return openWaits(this.comm, this.#queues);
  }

  /** The same with the calls that every rank here has made and that are not done. */
  openWaits(): OpenWait[] {
    const given = this.#submitted.postings().filter(({ op }) => op.pending);
    return [
      ...given.map((posting) => ({ posting, comm: this.comm.name, missing: [] })),
      ...this.waits(),
    ];
  }

  /** An operation that is open and awaited. */
  get awaited(): Operation | undefined {
    const open = [...this.#submitted.postings(), ...this.#queues.openPostings()];
    return open.find(({ op }) => op.pending && op.isObserved)?.op;
  }

  /** The operation that has been open for longest. */
  get oldest(): Operation | undefined {
    return (this.#submitted.postings()[0] ?? this.#queues.openPostings()[0])?.op;
  }

  /** True when a signal may still cancel an open call. */
  get cancellable(): boolean {
    return this.#queues.openPostings().some(({ cancellable }) => cancellable);
  }

  /** The open call that must be done first; `undefined` when none has a deadline. */
  firstDeadline(): Posting | undefined {
    return firstDue(this.#queues.openPostings());
  }

  /** A deadline has passed in real time. */
  async #expire(posting: Posting): Promise<void> {
    const areBlocked = this.#order !== undefined && this.#queues.dispatchedCount >= this.#granted;
    const open = { queues: this.#queues, submitted: this.#submitted, areBlocked };
    const cause = await timeoutCause(this.#dispatch.job, this.comm, posting, open);
    if (posting.op.pending) this.timeOut(posting, cause);
  }

  /** An unobserved failure ends the batches: later calls are refused. */
  #onUnobservedFailure(host: LedgerHost): void {
    this.batches.seal();
    host.onUnobservedFailure(this);
  }

  /** A call as the error of its communicator's end names it. */
  #labelOf({ call: { collective }, op: { callOp } }: Posting): CallLabel {
    return { collective, call: callOp.call, comm: this.comm.name };
  }

  #admit(rank: number, posting: Posting): boolean {
    const { op } = posting;
    const termination = this.#termination?.(rank, op.callingRank, this.#labelOf(posting));
    const { failures } = this;
    const refusal = termination ?? (failures.allObserved ? undefined : failures.poison(rank));
    if (refusal !== undefined) failures.refuse(op, refusal);
    return refusal === undefined;
  }

  /** Dispatches calls, after one more has become complete or the one before them is done. */
  #dispatchReady(): void {
    if (this.#order !== undefined) this.#order.request(this.#dispatchOneMore);
    else this.#dispatchAll();
  }

  /** Dispatches all complete calls, until none is left or the session needs time. */
  #dispatchAll(): void {
    while (!this.#executing && this.#termination === undefined) {
      const served = this.#dispatchNext();
      if (served === undefined) break;
      if (served instanceof Promise) void this.#track(served, () => this.#dispatchAll());
      else this.#monitor.noteActivity();
    }
    this.#onStopped();
  }

  /** Grants one more call its turn in the order across communicators. */
  readonly #dispatchOneMore = (): undefined | Promise<void> => {
    this.#granted++;
    return this.#dispatchGranted();
  };

  /** Serves as many calls as have had their turn. */
  readonly #dispatchGranted = (): undefined | Promise<void> => {
    while (this.#termination === undefined && this.#queues.dispatchedCount < this.#granted) {
      const served = this.#dispatchNext();
      if (served === undefined) break;
      if (!(served instanceof Promise)) continue;
      return this.#track(served, () => undefined).then(this.#dispatchGranted);
    }
    this.#monitor.noteActivity();
    this.#onStopped();
    return undefined;
  };

  /** `undefined`: there is none; true: dispatched. */
  #dispatchNext(): true | Promise<void> | undefined {
    return this.#dispatchCollective() ?? dispatchMessages(this.#dispatch, this.#queues);
  }

  /** No more calls can be dispatched for now. */
  #onStopped(): void {
    if (this.#executing) return;
    if (this.#termination !== undefined) this.#queues.clear();
    this.#idleGate.check();
  }

  /** `undefined`: there is none; true: dispatched. */
  #dispatchCollective(): true | Promise<void> | undefined {
    const pending = this.#collectives.first;
    if (pending === undefined || !pending.complete || !this.#queues.isAtAllHeads(pending))
      return undefined;
    this.#collectives.shift();
    const served = dispatchCollective(this.#dispatch, pending);
    if (served instanceof Promise) return served.then(() => this.#queues.shiftAll());
    this.#queues.shiftAll();
    return true;
  }

  /** Ranks of it live in other processes. */
  get #isDistributed(): boolean {
    return this.comm.local.length < this.comm.ranks.length;
  }

  /** No call is at work, nor will be when its turn comes. */
  get #isIdle(): boolean {
    const waits = this.#order?.isBlocked === true && !this.#queues.empty;
    return !this.#executing && this.#submitted.size === 0 && !waits;
  }

  /** A call has left the queue. */
  #onSubmissionDone(call: Submission, error: unknown): void {
    this.batches.seal();
    if (error === undefined) call.complete();
    else {
      const errorOf = errorsByCall(error, this.#dispatch);
      for (const posting of call.postings) this.failures.fail(posting.op, errorOf(posting));
    }
    this.#monitor.noteActivity();
    this.#idleGate.check();
  }

  #track(served: Promise<void>, then: () => void): Promise<void> {
    this.#executing = true;
    this.#monitor.executing(1);
    this.#readyQueue?.executing(1);
    return served.then(() => {
      this.#executing = false;
      this.#monitor.executing(-1);
      then();
      this.#readyQueue?.executing(-1);
    });
  }
}

/** The contexts of one communicator's calls. */
class CallContexts {
  readonly #contexts: readonly CallContext[];
  readonly #monitor: Monitor;
  readonly #isVirtual: boolean;

  /** `onCallbackError` gets calls that fail with the error of a callback. */
  constructor(
    { ranks }: CommInfo,
    monitor: Monitor,
    clock: VirtualClock | undefined,
    onCallbackError: (op: Operation) => void,
    resumption: Resumption | undefined,
  ) {
    this.#monitor = monitor;
    this.#isVirtual = clock !== undefined;
    this.#contexts = ranks.map((worldRank, rank) => {
      const { callSites } = monitor;
      return {
        rank,
        worldRank,
        callingRank: worldRank,
        observer: monitor,
        callSites,
        onCallbackError,
        resumption,
      };
    });
  }

  /** The context of all calls of a rank; `undefined` where another rank's program may make some. */
  fixed(rank: number): CallContext | undefined {
    return this.#isVirtual ? undefined : this.#contexts[rank];
  }

  /** The context of a rank's next call. */
  current(rank: number): CallContext {
    const context = this.#contexts[rank] as CallContext;
    const { callingRank } = this.#monitor;
    return callingRank === undefined || callingRank === context.callingRank
      ? context
      : { ...context, callingRank };
  }
}
