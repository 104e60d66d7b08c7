/**
 * The call ledger of one communicator: ranks post calls, the ledger matches them and dispatches complete ones, one at a time.
 *
 * The calls of a rank are dispatched in program order. A collective call is dispatched at the head of all ranks' queues, a send
 * and its receive at the head of both.
 */
import type { CommInfo } from "../backend.ts";
import type { CommError } from "../errors.ts";
import type { CallContext, Operation } from "../op.ts";
import { CallBatches } from "./batch.ts";
import { CommState, type WorldContext } from "./comm-state.ts";
import { dispatchCollective } from "./dispatch.ts";
import type { Cancellation } from "./failures.ts";
import { dispatchMessages } from "./messages.ts";
import { type Posting, type Prepared, repeatedPosting, type TransferPosting } from "./posting.ts";
import { MessageBatch } from "./queues.ts";

/** Matches the calls of all ranks of one communicator. */
export class Ledger extends CommState {
  /** Batches of repeated calls. */
  readonly batches: CallBatches;
  readonly #contexts: readonly CallContext[];
  /** True for a session that neither compares nor observes each call. */
  readonly #supportsRepeats: boolean;

  constructor(comm: CommInfo, world: WorldContext) {
    super(comm, world);
    const { monitor, readyQueue } = world;
    this.batches = new CallBatches(this);
    this.#supportsRepeats = this.session.observer === undefined && this.job?.compare === undefined;
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

  /** Takes a rank's next collective call. */
  post(rank: number, posting: Posting): void {
    this.batches.seal();
    if (!this.admit(rank, posting)) return;
    this.enqueue(rank, posting, this.batches.ofRank(rank).assign(posting.op));
  }

  enqueue(rank: number, posting: Posting, number: number): void {
    const pending = this.collectives.at(number);
    pending.postings[rank] = posting;
    pending.arrived++;
    this.queues.push(rank, pending);
    if (posting.deadlinePs !== undefined) this.deadlines?.watch(posting);
    this.world.monitor.noteActivity();
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
    const mayBegin = nowPs === undefined && this.isOpen && this.#isNext;
    if (mayBegin && this.batches.begin(prepared, op, timeoutMs)) return true;
    this.post(op.rank, repeatedPosting(prepared, op, timeoutMs, nowPs, calledAtPs));
    return true;
  }

  /** Nothing is open, and the next call is dispatched at once. */
  get #isNext(): boolean {
    return this.queues.size === 0 && !this.isExecuting && this.world.order?.isBlocked !== true;
  }

  /** Takes sends and receives of a rank that match their counterparts in any order. */
  postMessages(rank: number, transfers: readonly TransferPosting[]): void {
    this.batches.seal();
    const admitted = transfers.filter((transfer) => this.admit(rank, transfer));
    if (admitted.length === 0) return;
    this.messageNumbers.assign(rank, admitted);
    this.queues.push(rank, new MessageBatch(rank, admitted));
    for (const transfer of admitted) this.deadlines?.watch(transfer);
    this.world.monitor.noteActivity();
    this.#dispatchReady();
  }

  /**
   * Takes back a call that is still waiting for other ranks; they fail when they make it. One that was submitted, or that
   * other processes know of, cannot be taken back: it fails, and the communicator with it.
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
    if (this.world.order === undefined) this.#dispatchAll();
    else this.world.order.request(this.#dispatchGranted);
  }

  /** Dispatches calls, after one more has become complete or the one before them is done. */
  #dispatchReady(): void {
    if (this.world.order !== undefined) this.world.order.request(this.#dispatchOneMore);
    else this.#dispatchAll();
  }

  /** Dispatches all complete calls, until none is left or the session needs time. */
  #dispatchAll(): void {
    while (!this.isExecuting && this.termination === undefined) {
      const served = this.#dispatchNext();
      if (served === undefined) break;
      if (served instanceof Promise) void this.#track(served, () => this.#dispatchAll());
      else this.world.monitor.noteActivity();
    }
    this.#onStopped();
  }

  /** Grants one more call its turn in the order across communicators. */
  readonly #dispatchOneMore = (): undefined | Promise<void> => {
    this.granted++;
    return this.#dispatchGranted();
  };

  /** Serves as many calls as have had their turn. */
  readonly #dispatchGranted = (): undefined | Promise<void> => {
    while (this.termination === undefined && this.queues.dispatchedCount < this.granted) {
      const served = this.#dispatchNext();
      if (served === undefined) break;
      if (!(served instanceof Promise)) continue;
      return this.#track(served, () => undefined).then(this.#dispatchGranted);
    }
    this.world.monitor.noteActivity();
    this.#onStopped();
    return undefined;
  };

  /** `undefined`: there is none; true: dispatched. */
  #dispatchNext(): true | Promise<void> | undefined {
    const served = this.#dispatchCollective();
    return served ?? (this.queues.batches > 0 ? dispatchMessages(this) : undefined);
  }

  /** No more calls can be dispatched for now. */
  #onStopped(): void {
    if (this.isExecuting) return;
    if (this.termination !== undefined) this.queues.clear();
    this.checkIdle();
  }

  /** `undefined`: there is none; true: dispatched. */
  #dispatchCollective(): true | Promise<void> | undefined {
    const pending = this.collectives.first;
    if (pending === undefined || !pending.complete || !this.queues.isAtAllHeads(pending))
      return undefined;
    this.collectives.shift();
    const served = dispatchCollective(this, pending);
    if (served instanceof Promise) return served.then(() => this.queues.shiftAll());
    this.queues.shiftAll();
    return true;
  }

  #track(served: Promise<void>, then: () => void): Promise<void> {
    const { monitor, readyQueue } = this.world;
    this.isExecuting = true;
    monitor.executing(1);
    readyQueue?.executing(1);
    return served.then(() => {
      this.isExecuting = false;
      monitor.executing(-1);
      then();
      readyQueue?.executing(-1);
    });
  }
}
