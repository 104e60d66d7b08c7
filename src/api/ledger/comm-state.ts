/**
 * The state of one communicator in this process: its open calls, its failed calls, and its end.
 *
 * An open call is queued until all ranks have made it. A session that queues work has it afterwards, until it is done. A wrong
 * call fails on every rank and is then over, so that the communicator stays in step; an abort or a timeout ends all calls.
 */
import {
  asJobSession,
  type CommInfo,
  type Completion,
  isQueueing,
  type JobSession,
  type QueueingSession,
  type Session,
} from "../backend.ts";
import type { Communicator } from "../communicator.ts";
import { errorMessage } from "../error-text.ts";
import { CommAbortedError, type CommError } from "../errors.ts";
import { invariant } from "../invariant.ts";
import { completeOp, type Operation } from "../op.ts";
import { emitWarning } from "../warnings.ts";
import { SymmetricWindows } from "./checks.ts";
import {
  Deadlines,
  missingCause,
  orderCause,
  type TimeoutCause,
  timeoutCause,
  timeoutError,
} from "./deadlines.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import type { Inversion, OrderWatch, SubmittedGroup } from "./deadlock/order.ts";
import { commsIn } from "./deadlock/report.ts";
import {
  errorsByCall,
  Failures,
  PerRankError,
  type Termination,
  terminationOf,
} from "./failures.ts";
import { deadlineOf, MessageNumbers, type Posting, resultOf } from "./posting.ts";
import {
  type OpenWait,
  type PendingCollective,
  type QueueEntry,
  RankQueues,
  Waits,
} from "./queues.ts";
import { Fifo, Streams } from "./streams.ts";
import { ReadyQueue, WakeUps } from "./turns.ts";

/** Shared by the communicators of one world. */
export class WorldContext {
  readonly session: Session;
  readonly monitor: Monitor;
  /** Wakes the ranks of all communicators. */
  readonly wakeUps: WakeUps;
  /** Present where ranks resume one at a time. */
  readonly readyQueue: ReadyQueue | undefined;
  /** The calls of each rank, on all communicators. */
  readonly streams = new Streams<QueueEntry>();
  /** The communicators with tasks that wait until they are idle. */
  readonly draining = new Set<CommState>();
  /** Number of submissions to the session so far. */
  submissions = 0;
  /** Number of calls that a session executes asynchronously. */
  executing = 0;
  /** The communicator to whose open calls repeated ones are appended, unless the only rank here has them submitted at once. */
  appending: CommState | undefined;
  /** The communicators with an operation that failed unobserved, in use or not. */
  readonly unobserved = new Set<CommState>();
  /** The id of the next communicator. */
  nextId = 0;
  readonly #states = new WeakMap<CommInfo, CommState>();
  /** True while an outer frame of the stack dispatches freed calls. */
  #isHeld = false;
  readonly #warnedOrders = new Set<string>();

  /** Present in a job of several processes. */
  readonly orderWatch: OrderWatch | undefined;

  /** Opens a communicator of a split: the ends of its ranks here, by world rank. */
  readonly openComm: (comm: CommInfo) => ReadonlyMap<number, Communicator>;

  constructor(
    session: Session,
    monitor: Monitor,
    openComm: WorldContext["openComm"],
    orderWatch?: OrderWatch,
  ) {
    const { schedule } = session.scheduler;
    this.session = session;
    this.monitor = monitor;
    this.openComm = openComm;
    this.orderWatch = orderWatch;
    this.wakeUps = new WakeUps(monitor);
    this.readyQueue = schedule && new ReadyQueue(schedule, monitor, () => this.executing > 0);
  }

  /** Registers a communicator. */
  add(state: CommState): void {
    this.#states.set(state.comm, state);
  }

  /** A call waits for other processes, and keeps calls of other communicators waiting. */
  get isBlocked(): boolean {
    return this.executing > 0 && this.streams.isMixed;
  }

  /** The state of an open communicator. */
  stateOf(comm: CommInfo): CommState {
    return this.#states.get(comm) as CommState;
  }

  /** Dispatches calls that came to the head of a stream when a call of another communicator left it. */
  dispatchFreed(): void {
    const { freed } = this.streams;
    if (this.#isHeld || freed.length === 0) return;
    this.#holdFreed(() => {
      for (let entry = freed.shift(); entry !== undefined; entry = freed.shift()) {
        const state = this.stateOf(entry.comm);
        state.queues.cameToHead(entry);
        state.dispatchReady();
      }
    });
  }

  /** Ends communicators together: a call of one that waited for a call of another is not dispatched in between. */
  endTogether(end: () => void): void {
    this.#holdFreed(end);
    this.dispatchFreed();
  }

  #holdFreed(work: () => void): void {
    const wasHeld = this.#isHeld;
    this.#isHeld = true;
    try {
      work();
    } finally {
      this.#isHeld = wasHeld;
    }
  }

  /** Ends the communicators of calls in different orders; warns, once for each set, where the calls may still be done. */
  onInversion({ comms, text, errorOf, mayComplete }: Inversion): void {
    if (!mayComplete || this.session.info.isStrict === true) {
      this.endTogether(() => {
        for (const comm of comms) this.stateOf(comm).terminate(errorOf(comm));
      });
      return;
    }
    if (this.#warnedOrders.has(text.headline)) return;
    this.#warnedOrders.add(text.headline);
    emitWarning(errorMessage(text), "TwincclOrder");
  }

  /** A call that the session executed asynchronously is done. */
  checkIdle(): void {
    for (const state of [...this.draining]) state.checkIdle();
  }
}

/** A communicator's calls and their ends; the ledger adds how calls are posted and dispatched. */
export abstract class CommState {
  readonly comm: CommInfo;
  readonly world: WorldContext;
  readonly session: Session;
  /** The session, where it queues work. */
  readonly queueing: QueueingSession | undefined;
  /** The session, where it is one of several processes. */
  readonly job: JobSession | undefined;
  readonly queues: RankQueues;
  /** Collective calls that some rank has made and that are not dispatched, by number without gaps. */
  readonly collectives = new Fifo<PendingCollective>();
  readonly messageNumbers: MessageNumbers;
  /** Calls that the session has queued. */
  readonly submitted: SubmissionQueue;
  /** Where time is real. */
  readonly deadlines: Deadlines | undefined;
  /** The failed calls of each rank; an unobserved one makes every later call fail too. */
  readonly failures: Failures;
  readonly windows = new SymmetricWindows();
  /** A call is being executed. */
  isExecuting = false;
  /** Cancels the wait of a call for ranks of other processes; `undefined` while none waits. */
  barrierWait: AbortController | undefined;
  /** Number of completed splits; each rank takes part in all of them. */
  splits = 0;
  /** Number of recordings. Other communicators do not count, of which processes may have different ones. */
  recordings = 0;
  termination: Termination | undefined;
  /** Number of calls about to wake their ranks. */
  #settling = 0;
  #onIdle: (() => void)[] = [];

  constructor(comm: CommInfo, world: WorldContext) {
    const { session } = world;
    this.comm = comm;
    this.world = world;
    this.session = session;
    world.add(this);
    this.queueing = isQueueing(session) ? session : undefined;
    this.job = asJobSession(session);
    this.queues = new RankQueues(comm, world.streams);
    this.messageNumbers = new MessageNumbers(comm);
    this.submitted = new SubmissionQueue(this);
    const isReal = session.scheduler.clock === undefined;
    this.deadlines = isReal ? new Deadlines((posting) => this.#expire(posting)) : undefined;
    this.failures = new Failures(comm, () => {
      this.seal();
      world.unobserved.add(this);
    });
  }

  /** Closes the open batches: no call can be appended to them. */
  abstract seal(): void;

  /** Adds a rank's call to the rank's queue. */
  abstract enqueue(rank: number, posting: Posting, number: number): void;

  /** Dispatches complete calls, after one more has become complete or the one before them is done. */
  abstract dispatchReady(): void;

  /** Tracks a call that the session executes, and dispatches the next ones once it is done. */
  abstract track(served: Promise<void>): void;

  /** True while the session takes no work, not even repeated calls. */
  get holdsWork(): boolean {
    return this.job?.holdsWork(this.comm) === true;
  }

  // The open calls.

  /** True when some rank has calls that are not done. */
  get isBusy(): boolean {
    return this.queues.size > 0 || this.submitted.size > 0;
  }

  /** A rank's calls that have not settled. */
  pending(rank: number): Posting[] {
    const submitted = this.submitted.postings().filter(({ op }) => op.rank === rank);
    return [...submitted, ...this.queues.postings(rank)].filter(({ op }) => op.pending);
  }

  /** The waits through every rank's end. */
  waits(): OpenWait[] {
    const waits = new Waits(this.world.streams);
    return this.comm.ranks.flatMap((_, rank) => waits.ofRank(this.comm, rank));
  }

  /** These waits, and the calls that every rank here has made and that are not done. */
  openWaits(): OpenWait[] {
    const submitted = this.submitted.postings().filter(({ op }) => op.pending);
    return [
      ...submitted.map((posting) => {
        return { posting, comm: this.comm.name, missing: [], behind: [], position: -1 };
      }),
      ...this.waits(),
    ];
  }

  /** An operation that is open and awaited. */
  get awaited(): Operation | undefined {
    for (const open of [this.submitted.postings(), this.queues.openPostings()])
      for (const { op } of open) if (op.pending && op.isObserved) return op;
    return undefined;
  }

  /** The operation that has been open for longest. */
  get oldest(): Operation | undefined {
    return (this.submitted.postings()[0] ?? this.queues.openPostings().next().value)?.op;
  }

  /** True when a signal may still cancel an open call. */
  get cancellable(): boolean {
    for (const { cancellable } of this.queues.openPostings()) if (cancellable) return true;
    return false;
  }

  /** The open calls with a deadline. */
  get withDeadline(): Posting[] {
    return [...this.queues.openPostings()].filter((posting) => deadlineOf(posting) < Infinity);
  }

  /** Ranks of it live in other processes. */
  get isDistributed(): boolean {
    return this.comm.local.length < this.comm.ranks.length;
  }

  // Idleness.

  /** Resolves when no call is being executed or about to wake its ranks. */
  drained(): Promise<void> {
    if (this.#isIdle && this.#settling === 0) return Promise.resolve();
    this.world.draining.add(this);
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  /** Some work has ended. */
  checkIdle(): void {
    if (this.#onIdle.length === 0 || this.#settling > 0 || !this.#isIdle) return;
    const waiting = this.#onIdle;
    this.#onIdle = [];
    this.world.draining.delete(this);
    for (const resolve of waiting) resolve();
  }

  /**
   * Runs `settle` once every rank that was about to wait does so: only then does the order of waking count. `cost` is 1 for
   * each rank of a small call.
   */
  settleLater(settle: () => void, cost: number): void {
    this.#settling++;
    this.world.wakeUps.schedule(() => {
      this.#settling--;
      settle();
      this.world.monitor.noteActivity();
      this.checkIdle();
    }, cost);
  }

  /** Resolves once the calls that are about to wake their ranks have done so; `undefined` without any. */
  settled(): Promise<void> | undefined {
    if (this.#settling === 0) return undefined;
    return new Promise((resolve) => this.settleLater(resolve, 0));
  }

  /** True if no call is executed or submitted, and no queued one waits for a call of another communicator. */
  get #isIdle(): boolean {
    const { executing, streams } = this.world;
    // Calls that came to the head of a stream are about to be dispatched.
    const waits = (executing > 0 || streams.freed.length > 0) && this.queues.size > 0;
    return !this.isExecuting && this.submitted.size === 0 && !waits;
  }

  // Failures, and the end of the communicator.

  /** A call was not done in time: it fails, and the communicator with it. */
  timeOut(posting: Posting, cause: TimeoutCause): void {
    const error = timeoutError(this.comm, posting, cause, this.deadlines === undefined);
    posting.op.finishedAtPs = deadlineOf(posting);
    this.failures.fail(posting.op, error);
    this.abortAfter(posting.op, error, "timed out in");
  }

  /** Ends the communicator after a failed call; `what` is the failure as a verb, such as "gave up". */
  abortAfter(op: Operation, cause: CommError, what: string): void {
    const headline = `"${this.comm.name}" was aborted: rank ${op.rank} ${what} call ${op.call}`;
    const facts = { ranks: [op.rank], cause };
    const termination = terminationOf(CommAbortedError, this.comm, { headline }, facts);
    this.abort(termination, op.finishedAtPs);
  }

  /**
   * Ends the communicator, at a virtual time if one is known, and cancels the work that its session has queued where that can
   * be done.
   */
  abort(termination: Termination, atPs = 0): void {
    const { submitted, job, comm } = this;
    const isFirst = this.termination === undefined;
    if (isFirst && job !== undefined) {
      // Ranks of the other processes may wait for this one.
      const [rank = 0] = comm.local;
      const error = termination(rank, comm.ranks[rank] as number);
      job.peers.aborted(comm, error.cause instanceof Error ? error.cause : error);
    }
    // Ranks of other processes may be at what is open here, or wait for what will not be made.
    const isAwaited = this.isDistributed && (isFirst || this.queues.size > 0);
    this.terminate(termination, atPs);
    // What is executed before a call is queued, such as an exchange of counts, may hang as well.
    const isBusy = submitted.size > 0 || this.isExecuting;
    if (!(isBusy || isAwaited)) return;
    const errorOf = (posting: Posting): CommError => this.#errorOf(termination, posting);
    this.failures.failEach(submitted.postings(), errorOf);
    if (this.barrierWait !== undefined) this.barrierWait.abort();
    else this.session.abort(comm, new PerRankError(errorOf));
  }

  /**
   * Ends the communicator: open calls and all later ones fail, at a virtual time if one is known. A call that is being
   * executed still finishes.
   */
  terminate(termination: Termination, atPs = 0): void {
    this.seal();
    if (this.termination !== undefined) return;
    this.termination = termination;
    this.comm.ranks.forEach((_, rank) => {
      for (const posting of this.queues.postings(rank)) {
        const { op } = posting;
        if (op.status !== "waiting") continue;
        op.finishedAtPs = atPs;
        this.failures.fail(op, this.#errorOf(termination, posting));
      }
    });
    this.queues.clear(this.isExecuting);
    this.collectives.clear();
    this.world.dispatchFreed();
  }

  /** Back to call 0 on every rank, as new. */
  reset(): void {
    invariant(this.#isIdle, "a communicator is reset when nothing runs");
    this.seal();
    this.termination = undefined;
    if (this.queues.size > 0) this.queues.clear();
    this.collectives.clear();
    this.messageNumbers.reset();
    this.failures.clear();
  }

  /** True while calls may be made: the communicator has not ended, and every failure was observed. */
  get isOpen(): boolean {
    return this.termination === undefined && this.failures.allObserved;
  }

  /** Fails a call that may not be made now. */
  admit(rank: number, posting: Posting): boolean {
    if (this.isOpen) return true;
    const { failures, termination } = this;
    const { op } = posting;
    const refusal =
      termination === undefined ? failures.poison(rank) : this.#errorOf(termination, posting);
    if (refusal !== undefined) failures.refuse(op, refusal);
    return refusal === undefined;
  }

  /** A deadline has passed in real time. */
  async #expire(posting: Posting): Promise<void> {
    const [cause, orders] = await Promise.all([
      // A cause that cannot be found must not keep the call open.
      timeoutCause(this, posting).catch(() => missingCause([])),
      this.world.orderWatch?.compareAtDeadline().catch(() => undefined),
    ]);
    if (!posting.op.pending) return;
    // Calls of other communicators that wait for each other are not what this one waited for.
    const isPart = orders !== undefined && commsIn(orders).has(this.comm.name);
    this.timeOut(posting, isPart ? orderCause(orders) : cause);
  }

  /** The error of a call on this communicator, which ends or has ended. */
  #errorOf(termination: Termination, { call: { collective }, op }: Posting): CommError {
    const { rank, callingRank, callOp } = op;
    return termination(rank, callingRank, { collective, call: callOp.call, comm: this.comm.name });
  }
}

// Submissions: calls that the session has queued.

/** Calls that the session completes together. */
export abstract class Submission implements Completion {
  acceptsMore = false;
  /** The queue that holds it; `undefined` before and after. */
  queue: SubmissionQueue | undefined;

  /** Its place among the submissions of the world. */
  serial = 0;

  /** The posted calls of its ranks. */
  abstract readonly postings: readonly Posting[];

  /** The posted calls in groups, in the order of submission. */
  get groups(): Iterable<SubmittedGroup> {
    return [{ serial: this.serial, postings: this.postings }];
  }

  /** Gives its ranks their results. */
  abstract complete(): void;

  settled(error?: unknown): void {
    this.queue?.settled(this, error);
  }
}

/** One call, or the messages of one exchange: those of its ranks that live in this process. */
export class PostedSubmission extends Submission {
  readonly postings: readonly Posting[];

  constructor(postings: readonly Posting[]) {
    super();
    this.postings = postings;
  }

  complete(): void {
    for (const { op, call, prepared } of this.postings) completeOp(op, resultOf(prepared, call));
  }
}

/** The queued calls of one communicator, oldest first. */
export class SubmissionQueue {
  readonly #state: CommState;
  readonly #calls = new Fifo<Submission>();

  /** The queued calls, as they were submitted. */
  get groups(): readonly SubmittedGroup[] {
    return this.#calls.items().flatMap(({ groups }) => [...groups]);
  }

  constructor(state: CommState) {
    this.#state = state;
  }

  get size(): number {
    return this.#calls.length;
  }

  /** Queues a call, which `submit` passes to the session. A call for which it throws was not queued. */
  add(call: Submission, submit: (completion: Completion) => void): void {
    const { world } = this.#state;
    call.queue = this;
    call.serial = ++world.submissions;
    this.#calls.push(call);
    world.monitor.executing(1);
    try {
      submit(call);
    } catch (error) {
      this.#remove(call);
      throw error;
    }
  }

  /** A queued call is done, or failed. */
  settled(call: Submission, error: unknown): void {
    const state = this.#state;
    this.#remove(call);
    if (error === undefined) call.complete();
    else {
      state.seal();
      state.failures.failEach(call.postings, errorsByCall(error, state));
    }
    state.world.monitor.noteActivity();
    state.checkIdle();
  }

  /** The queued calls of every rank. */
  postings(): Posting[] {
    return this.#calls.items().flatMap(({ postings }) => postings);
  }

  /** The calls made together with a posting, and the posting; empty where it is not queued. */
  submittedWith({ op }: Posting): readonly Posting[] {
    const group = this.groups.find(({ postings }) => postings.some((each) => each.op === op));
    return group?.postings ?? [];
  }

  #remove(call: Submission): void {
    call.queue = undefined;
    this.#calls.remove(call);
    this.#state.world.monitor.executing(-1);
  }
}
