/** One communicator of a session: NCCL's handles of its members in this process, their calls and their end. */
import {
  type CommInfo,
  type Completion,
  memoryOf,
  type RankCall,
  type Work,
} from "../../../api/backend-entry.ts";
import { firstLine } from "../../../api/error-text.ts";
import { CommAbortedError, CommError } from "../../../api/index.ts";
import { longestTimerMs } from "../../../api/ledger/turns.ts";
import { runAll } from "../../../api/run-all.ts";
import { settlesWithin } from "../../../job/async.ts";
import type { CallCounters } from "../../../job/comm-status.ts";
import type { Device } from "../device/device.ts";
import { DeviceMemory } from "../device/device-memory.ts";
import type { LocalMember } from "../device/local-rank.ts";
import type { MemoryOperation } from "../device/memory-order.ts";
import { dataTypes, reduceOps, scalarBytes } from "../device/nccl-types.ts";
import { asPromise, type Progress } from "../device/progress.ts";
import { located, NcclError } from "../result/errors.ts";
import type { ConnectEnd, NcclCalls } from "../result/nccl.ts";
import { CommLock } from "./comm-lock.ts";
import type { CapturedGraph } from "./graphs.ts";
import { addressOf, type NcclCallArgs, typeOf } from "./nccl-steps.ts";
import { RegisteredWindows } from "./windows.ts";

/** Longest time for NCCL to abort. Memory that is not freed by then stays. */
const abortMs = 10_000;

/**
 * Longest times for NCCL's calls on other threads to end before an abort: registrations, and all. NCCL 2.28.9 frees the communicator
 * without a wait for the thread that splits it.
 */
const [registrationMs, callsMs] = [1_000, 2_000];

/** One communicator, with the members in this process by rank. */
export class NcclCommunicator {
  readonly info: CommInfo;
  readonly size: number;
  /** True where some members are in other processes. */
  readonly spansProcesses: boolean;
  /** True in a job of several processes, also where all members are here. */
  readonly #isInJob: boolean;
  readonly members: ReadonlyMap<number, LocalMember>;
  /** The devices of the members here, each with the stream of its calls. */
  readonly devices: readonly Device[];
  /** Waits for its calls, in the order of its streams. */
  readonly progress: Progress;
  readonly lock = new CommLock();
  readonly windows: RegisteredWindows;
  readonly graphs = new Set<CapturedGraph>();
  /** True once it takes no more work: it has ended, or is about to end. */
  isOver = false;
  /** The reason of its abort. */
  abortReason: unknown;
  /** True once a call has failed here: a part of it may be under way on the device, for ever. */
  hasFailed = false;
  #areStreamsClosed = false;
  readonly #over = new AbortController();
  /** Counters of calls submitted here, for queries of other processes; left out where all ranks are here. */
  counters: CallCounters | undefined;
  /** Aborts it: some members are in a call that the others are not in. */
  outOfStep: (error: unknown) => void = () => undefined;
  /** Receives completed calls once results do not count any more. */
  withhold: ((completion: Completion) => void) | undefined;
  readonly #nccl: NcclCalls;
  readonly #remoteErrorGrace = new RemoteErrorGrace();

  /** At least one member is here. */
  constructor(info: CommInfo, members: readonly LocalMember[], nccl: NcclCalls, isInJob = false) {
    this.info = info;
    this.#isInJob = isInJob;
    this.size = info.ranks.length;
    this.members = new Map(members.map((member) => [member.rank, member]));
    this.spansProcesses = this.members.size < this.size;
    this.windows = new RegisteredWindows(nccl, this.members, this.lock, (member, step) =>
      this.#locate(member, step),
    );
    this.devices = members.map(({ stream }) => stream.device);
    this.progress = (members[0] as LocalMember).stream.progress;
    this.#nccl = nccl;
  }

  /** The member here with a rank. */
  member(rank: number): LocalMember {
    return this.members.get(rank) as LocalMember;
  }

  /** The only member here, in a job. */
  get #member(): LocalMember {
    const [member] = this.members.values();
    return member as LocalMember;
  }

  /** True if work of it may be under way on the device. */
  get mayHaveWork(): boolean {
    return this.hasFailed || this.progress.hasWorkOf(this);
  }

  /** Fires when it takes no more work. */
  get overSignal(): AbortSignal {
    return this.#over.signal;
  }

  /** Takes no more work: it is about to end, with a reason where it is aborted. */
  markOver(reason?: unknown): void {
    this.isOver = true;
    this.#over.abort(reason);
    const withheld = this.withhold && abortedError(this.info, undefined);
    this.#remoteErrorGrace.end(reason ?? withheld);
  }

  /**
   * Keeps a call pending that failed with `ncclRemoteError`: the end of the communicator, for which another process may report a
   * reason, settles it. Throws any other error.
   */
  deferRemoteError(error: unknown, completion: Completion): void {
    const { counters } = this;
    this.hasFailed = true;
    const isLeft = !this.isOver && counters !== undefined;
    if (!isLeft || !this.#remoteErrorGrace.defer(error, completion)) throw error;
    counters.disconnected = true;
  }

  /** Like `deferRemoteError`, for an appended call: the work of calls before it in its completion must not settle that. */
  deferAppended(error: unknown, completion: Completion): void {
    this.deferRemoteError(error, completion);
    this.withholdResults();
  }

  /** Keeps calls pending from now on, until the end of the communicator settles them: another process has aborted it. */
  withholdResults(): void {
    this.withhold ??= (completion) => this.#remoteErrorGrace.hold(completion);
  }

  /** A promise that rejects when the communicator ends, for an error that `deferRemoteError` defers. */
  rejectAtEnd(error: unknown): Promise<never> {
    const over = asPromise((completion) => this.deferRemoteError(error, completion));
    return over.then(() => Promise.reject(error));
  }

  /** Counts collective call `number` as submitted. A call that failed to submit does not count. */
  countSubmitted(number: number): void {
    if (this.counters !== undefined) this.counters.submitted = number + 1;
  }

  /** Counts work that waits at a barrier as submitted. */
  countWaiting(work: Work): void {
    if ("transfers" in work) this.counters?.awaitPeers(work.remote);
    else this.countSubmitted(work.number);
  }

  /** The NCCL arguments of a member's call; `destroyOp` follows the call. */
  callArgs(call: RankCall): NcclCallArgs {
    const { handle, local, stream } = this.member(call.rank);
    return {
      ...{ call, size: this.size, scratch: local.scratch },
      send: addressOf(call.send),
      recv: addressOf(call.recv),
      type: typeOf(call.dtype),
      op: this.#createOp(call),
      comm: handle,
      stream: stream.device.stream,
    };
  }

  /** Has calls on streams of its own wait for the memory operations on their buffers; the rank's stream needs none of that. */
  followMemory(calls: readonly RankCall[]): void {
    if (this.info.ownStream !== true) return;
    for (const call of calls) {
      const { local, stream } = this.member(call.rank);
      if (local.memoryOrder.follow(stream.device, operationsOf(call))) this.progress.launches++;
    }
  }

  /** Resolves when the present work of its streams is done. */
  async idle(): Promise<void> {
    if (!this.#areStreamsClosed) await this.progress.after(this.devices);
  }

  /** Closes streams of its own once they are idle, which must not take part in calls any more. */
  async closeStreams(): Promise<void> {
    if (this.info.ownStream !== true) return;
    await this.idle().catch(() => undefined);
    const open = [...this.members.values()].filter(({ local }) => local.isOpen);
    if (this.#areStreamsClosed || open.length === 0) return;
    this.#areStreamsClosed = true;
    runAll([
      () => this.progress.release(),
      ...open.map((member) => () => member.local.closeStream(member.stream)),
    ]);
  }

  /** Connects the rank of this process with ranks of other processes, on another thread. */
  async connect(ends: readonly ConnectEnd[]): Promise<void> {
    if (ends.length === 0) return;
    const member = this.#member;
    const { handle, local, stream } = member;
    const { device } = stream;
    const room = { comm: handle, stream: device.stream, ...local.connectBuffers };
    const meet = () => this.#nccl.connectInBackground(device.threadDevice, room, ends);
    const { hold } = this.progress;
    const isConnected = await hold
      .connect(() => this.lock.run(meet), this.overSignal)
      .catch((error: unknown) => {
        throw this.#located(member, error);
      });
    if (!isConnected) throw abortedError(this.info, this.abortReason);
  }

  /** NCCL's number of the operator. A pre-multiplied sum is created for the call: `destroyOp` destroys it. */
  #createOp({ op, dtype, rank }: RankCall): number {
    if (op === undefined || dtype === undefined) return 0;
    if (typeof op === "string") return reduceOps[op];
    const { handle } = this.member(rank);
    return this.#nccl.preMulSum(scalarBytes(dtype, op.preMul), dataTypes[dtype], handle);
  }

  /** Destroys an operator that was created for a call. NCCL has read it once the call was issued. */
  destroyOp({ op, rank }: RankCall, created: number): void {
    if (op === undefined || typeof op === "string") return;
    this.#nccl.destroyOp(created, this.member(rank).handle);
  }

  /**
   * Ends it: releases graphs, windows and handles, with no work in flight. The handles follow `othersEnd`: until then other ranks may
   * use memory of this one. Where all ranks are here, it throws a background error.
   */
  async end(othersEnd: Promise<void>): Promise<void> {
    if (!this.#isInJob) await this.#abortIfFailed();
    // Beside another one that is freed, CUDA may block this thread.
    const { hold } = this.progress;
    while (hold.isOn) await hold.over;
    // NCCL would wait for the other ranks if it destroyed the handles.
    const ending = othersEnd.then(() => this.#abortWhileIdle());
    // They are freed even where a graph or window was not released.
    try {
      runAll(this.#releases());
    } finally {
      await ending;
    }
  }

  async #abortIfFailed(): Promise<void> {
    try {
      this.check();
    } catch (error) {
      await this.abort();
      throw error;
    }
  }

  #releases(): (() => void)[] {
    const members = [...this.members.values()];
    const discards = [...this.graphs].flatMap((graph) =>
      members.map((member) => () => this.discard(member, graph)),
    );
    return [...discards, () => this.windows.release()];
  }

  /** Gives back a member's part of a recording. */
  discard(member: LocalMember, graph: CapturedGraph): void {
    this.#locate(member, () => graph.discard(member));
  }

  /** Frees the handles with their running calls, on other threads; false where NCCL does not end in time. */
  async #abortHandles(): Promise<boolean> {
    const ends = Array.from(this.members.values(), (member) =>
      this.#nccl.abortInBackground(member.handle).catch((error: unknown) => {
        throw this.#located(member, error);
      }),
    );
    if (!(await settlesWithin(abortMs, Promise.allSettled(ends)))) return false;
    await Promise.all(ends);
    return true;
  }

  /** Like `#abortHandles`, in a job with a hold of work: past the bound, until no kernel runs for which CUDA would block this thread. */
  async #abortInJob(): Promise<boolean> {
    const hasEnded = await this.#abortHandles();
    if (!hasEnded) await this.#member.local.untilIdle();
    return hasEnded;
  }

  /** Like `#abortHandles`, in a job while no kernel of the rank of this process runs. */
  async #abortWhileIdle(): Promise<boolean> {
    if (!this.#isInJob) return await this.#abortHandles();
    const { hold } = this.progress;
    const free = () => this.#abortInJob();
    // Past the bound only an abort ends a call of another thread.
    const isFree = await this.lock.isFreeWithin(callsMs);
    return await (isFree ? hold.whileIdle(this.#member.local, free) : hold.during(free));
  }

  /** Like `#abortHandles` with running calls, in a job behind `othersKnow`; see `SubmissionHold.breakOff`. */
  #breakOff(othersKnow: Promise<void>): Promise<boolean> {
    if (!this.#isInJob) return this.#abortHandles();
    const { local, stream } = this.#member;
    const ready = Promise.all([othersKnow, this.lock.isFreeWithin(callsMs)]);
    const free = () => this.#abortInJob();
    return this.progress.hold.breakOff(local, stream.device, ready, free);
  }

  /** Aborts the handles with their running calls, on other threads, within a bound from `othersKnow` on. */
  abort(othersKnow: Promise<void> = Promise.resolve()): Promise<void> {
    return this.#abort(() => this.#breakOff(othersKnow));
  }

  /** Aborts the handles of a communicator without work. */
  abortWhileIdle(): Promise<void> {
    return this.#abort(() => this.#abortWhileIdle());
  }

  async #abort(freeHandles: () => Promise<boolean>): Promise<void> {
    // CUDA may block this thread before the handles are aborted; NCCL waits for the graphs.
    const isBlocked = this.#isInJob && this.progress.hold.isFreeing;
    const discarded = isBlocked
      ? this.#member.local.untilIdle().then(() => this.#discardAll())
      : this.#discardAll();
    if (this.windows.isRegistering && !(await this.lock.isFreeWithin(registrationMs))) {
      // NCCL 2.28.9 corrupts the heap when aborted there while the other rank is dead.
      process.emitWarning(
        `abort: ranks of "${this.info.name}" did not register symmetric memory together: what NCCL has of it stays until the process ends`,
        { type: "TwincclClose", code: "ERR_COMM_ABORTED" },
      );
      this.windows.abandon();
      return;
    }
    const releaseMemory = this.windows.holdUntilHandlesEnd();
    // Past the bound NCCL may go on using the memory. An error of NCCL adds nothing to the reason of the abort.
    if (await freeHandles().catch(() => true)) releaseMemory();
    await discarded;
  }

  /** NCCL waits without end for graphs that hold its kernels. A failure of one must not keep the others. */
  #discardAll(): void {
    for (const graph of this.graphs) {
      try {
        graph.discard();
      } catch {}
    }
    this.graphs.clear();
  }

  /** Throws a background error; `ncclRemoteError` only after a grace period, in which others may report its cause. */
  check(): void {
    for (const member of this.members.values()) {
      try {
        if (this.#remoteErrorGrace.firstError !== undefined)
          throw this.#remoteErrorGrace.firstError;
        this.#nccl.checkAsync(member.handle);
      } catch (error) {
        if (this.counters !== undefined && this.#remoteErrorGrace.isWithinGrace(error)) {
          this.counters.disconnected = true;
          continue;
        }
        throw this.#located(member, error);
      }
    }
  }

  /** Runs a step of a member, whose rank and device its error gets. */
  #locate(member: LocalMember, step: () => void): void {
    try {
      step();
    } catch (error) {
      throw this.#located(member, error);
    }
  }

  /** An error with the rank and the device of a member. */
  #located({ rank, local }: LocalMember, error: unknown): unknown {
    const { size, info } = this;
    return located(error, { rank, size, comm: info.name, device: local.device.name });
  }
}

/** The last memory operations on the buffers of a call. */
function operationsOf({ send, recv, recorded }: RankCall): (MemoryOperation | undefined)[] {
  return (recorded?.buffers ?? [send, recv]).flatMap((buffer) => {
    const memory = buffer && memoryOf(buffer);
    return memory instanceof DeviceMemory ? memory.lastOperations : [];
  });
}

/** The error of work for a communicator that was aborted. */
export function abortedError({ name }: CommInfo, cause: unknown): CommAbortedError {
  const why = cause instanceof CommError ? `: ${firstLine(cause)}` : "";
  return new CommAbortedError(
    {
      headline: `"${name}" was aborted, and its NCCL communicators with it${why}`,
      hint: "world.rebuild() makes new ones",
    },
    { comm: name, cause },
  );
}

/**
 * The grace period, and the most that one check adds to it. Waiting processes query the others each second; time in which this
 * process was stopped does not count.
 */
const [remoteErrorGraceMs, longestStepMs] = [4_000, 1_000];

/**
 * Calls of one communicator that stay pending until its end: in a grace period for `ncclRemoteError`, and those with results that
 * do not count. NCCL reports a closed connection only. The reason (a lost process, or the end of the communicator there) is reported
 * a little later.
 */
class RemoteErrorGrace {
  #elapsedMs = 0;
  #lastCheckMs: number | undefined;
  /** The error of the first deferred call; `undefined` before. */
  firstError: unknown;
  #deferred: Completion[] = [];
  #keepAliveTimer: NodeJS.Timeout | undefined;

  /** True for an `ncclRemoteError` within the grace period. */
  isWithinGrace(error: unknown): boolean {
    if (!isRemoteError(error)) return false;
    const nowMs = performance.now();
    this.#elapsedMs += Math.min(nowMs - (this.#lastCheckMs ?? nowMs), longestStepMs);
    this.#lastCheckMs = nowMs;
    return this.#elapsedMs < remoteErrorGraceMs;
  }

  /** Defers a call that failed with `ncclRemoteError`; false for other errors. */
  defer(error: unknown, completion: Completion): boolean {
    if (!isRemoteError(error)) return false;
    this.firstError ??= error;
    this.#lastCheckMs ??= performance.now();
    this.hold(completion);
    return true;
  }

  /** Defers a call that is done, whose result does not count. */
  hold(completion: Completion): void {
    completion.acceptsMore = false;
    this.#deferred.push(completion);
    // Deferred calls must get their error: the process waits for it.
    this.#keepAliveTimer ??= setInterval(() => undefined, longestTimerMs);
  }

  /** Settles the deferred calls, with the reason of an abort where there is one. */
  end(reason: unknown): void {
    const open = this.#deferred;
    this.#deferred = [];
    clearInterval(this.#keepAliveTimer);
    for (const completion of open) completion.settled(reason ?? this.firstError);
  }
}

function isRemoteError(error: unknown): boolean {
  return error instanceof NcclError && error.statusName === "ncclRemoteError";
}
