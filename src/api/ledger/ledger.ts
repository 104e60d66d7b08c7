/**
 * The call ledger of one communicator: ranks post calls, the ledger matches them and dispatches complete ones, one at a time.
 *
 * The calls of a rank are dispatched in program order, over all its communicators. A collective call is dispatched at the head
 * of all ranks' streams, a send and its receive at the head of both.
 */
import type { CommInfo } from "../backend.ts";
import type { CommError } from "../errors.ts";
import type { CallContext, Operation } from "../op.ts";
import { CallBatches } from "./batch.ts";
import { CommState, type WorldContext } from "./comm-state.ts";
import { findInversion, type OpenCalls } from "./deadlock/order.ts";
import { dispatchCollective } from "./dispatch.ts";
import type { Cancellation } from "./failures.ts";
import { dispatchMessages } from "./messages.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import { MessageBatch, PendingCollective, type QueueEntry } from "./queues.ts";

/** Matches the calls of all ranks of one communicator. */
export class Ledger extends CommState {
  /** Batches of repeated calls. */
  readonly batches: CallBatches;
  readonly #contexts: readonly CallContext[];

  constructor(comm: CommInfo, world: WorldContext) {
    super(comm, world);
    const { monitor, readyQueue } = world;
    this.batches = new CallBatches(this);
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

  /** The open calls of the first rank here, for other processes. */
  get openCalls(): OpenCalls {
    const { comm, submitted, queues } = this;
    const [rank = 0] = comm.local;
    return {
      ...{ comm, next: this.batches.ofRank(rank).next },
      ...{ submitted: submitted.groups, queued: queues.groups(rank) },
    };
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

  /** The context of a rank's next call; `undefined` where the rank may make no calls now. */
  admittedContext(rank: number): CallContext | undefined {
    const { worldRank } = this.#contexts[rank] as CallContext;
    const reason = this.world.monitor.refusal(worldRank);
    return reason === undefined ? this.currentContext(rank) : undefined;
  }

  /** Takes a rank's next collective call. `beforeDispatch` may cancel it. */
  post(rank: number, posting: Posting, beforeDispatch?: () => void): void {
    this.#sealRows();
    if (!this.admit(rank, posting)) return;
    this.enqueue(rank, posting, this.batches.ofRank(rank).assign(posting.op), beforeDispatch);
  }

  enqueue(rank: number, posting: Posting, number: number, beforeDispatch?: () => void): void {
    const pending = this.#collectiveAt(number);
    pending.add(posting);
    this.queues.push(rank, pending);
    if (posting.timeoutMs !== undefined) this.deadlines?.watch(posting);
    this.#notePosted(pending, rank);
    beforeDispatch?.();
    if (pending.complete) this.dispatchReady();
  }

  /** The call of that number; the first rank that makes it creates it. */
  #collectiveAt(number: number): PendingCollective {
    const { collectives } = this;
    const { number: first = number } = collectives.first ?? {};
    const known = collectives.at(number - first);
    if (known !== undefined) return known;
    const pending = new PendingCollective(number, this.comm);
    collectives.push(pending);
    return pending;
  }

  #notePosted(made: QueueEntry, rank: number): void {
    this.world.monitor.noteActivity();
    if (this.#hasOtherCalls) this.#compareOrder(made, rank);
  }

  /** Calls of other communicators are open as well, or may have been made in another order. */
  get #hasOtherCalls(): boolean {
    const { size, issued } = this.world.streams;
    return this.queues.size !== size || issued !== undefined;
  }

  #compareOrder(made: QueueEntry, rank: number): void {
    const { world } = this;
    const inversion = findInversion(world.streams, made, rank);
    if (inversion !== undefined) world.onInversion(inversion);
    if (world.orderWatch !== undefined && world.isBlocked) world.orderWatch.noteChange();
  }

  /** Closes the open batches before another call: calls without a complete row are queued before it. */
  #sealRows(): void {
    this.batches.seal();
    this.world.appending?.seal();
  }

  /** Takes sends and receives of a rank that match their counterparts in any order. */
  postMessages(rank: number, transfers: readonly TransferPosting[]): void {
    this.#sealRows();
    const admitted = transfers.filter((each) => this.admit(rank, each));
    if (admitted.length === 0) return;
    this.messageNumbers.assign(rank, admitted);
    const batch = new MessageBatch(this.comm, rank, admitted);
    this.queues.push(rank, batch);
    const { deadlines } = this;
    if (deadlines !== undefined) for (const transfer of admitted) deadlines.watch(transfer);
    this.#notePosted(batch, rank);
    this.dispatchReady();
  }

  /**
   * Takes back a call that is still waiting for other ranks; they fail when they make it. One that was submitted, or that
   * other processes may go on with, cannot be taken back: it fails, and the communicator with it.
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
    this.dispatchReady();
  }

  /** Dispatches all complete calls, until none is left or the session needs time. */
  dispatchReady(): void {
    const { queues, world } = this;
    while (!this.isExecuting && this.termination === undefined) {
      const served =
        this.#dispatchCollective() ?? (queues.batches > 0 ? dispatchMessages(this) : undefined);
      if (served === undefined) break;
      if (served instanceof Promise) this.track(served);
      else world.monitor.noteActivity();
    }
    if (!this.isExecuting) {
      if (this.termination !== undefined) queues.clear();
      this.checkIdle();
    }
    world.dispatchFreed();
  }

  /** Dispatches the oldest collective call; `undefined` if it is not complete. */
  #dispatchCollective(): true | Promise<void> | undefined {
    const pending = this.collectives.first;
    if (pending === undefined || !pending.complete || !this.queues.isAtAllHeads(pending))
      return undefined;
    this.collectives.shift();
    pending.isDispatched = true;
    const served = dispatchCollective(this, pending);
    if (served instanceof Promise) return served.then(() => this.queues.shiftAll(pending));
    this.queues.shiftAll(pending);
    return true;
  }

  track(served: Promise<void>): void {
    const { world } = this;
    const { monitor, readyQueue } = world;
    this.isExecuting = true;
    world.executing++;
    if (this.#hasOtherCalls) world.orderWatch?.noteChange();
    monitor.executing(1);
    void served.then(() => {
      this.isExecuting = false;
      world.executing--;
      monitor.executing(-1);
      this.dispatchReady();
      world.checkIdle();
      readyQueue?.pickLater();
    });
  }
}
