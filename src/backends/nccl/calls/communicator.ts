/** The NCCL communicators of the ranks of this process, by communicator of the world. */
import type { CommInfo, Completion, RankCall } from "../../../api/index.ts";
import { asPromise, longestTimerMs, runAll, settlesWithin } from "../common/async.ts";
import type { Device } from "../device/device.ts";
import type { LocalMember } from "../device/local-rank.ts";
import { dataTypes, reduceOps, scalarBytes } from "../device/nccl-types.ts";
import { located, NcclError } from "../result/errors.ts";
import type { ConnectEnd, NcclCalls } from "../result/nccl.ts";
import type { CallCounters } from "./call-counters.ts";
import { CommLock } from "./comm-lock.ts";
import type { CapturedGraph } from "./graphs.ts";
import { addressOf, type NcclCallArgs } from "./nccl-steps.ts";
import { RegisteredWindows } from "./windows.ts";

/** Longest time for NCCL to end a communicator with the other processes, and to abort; memory that it has not freed by then stays. */
const [endMs, abortMs] = [10_000, 10_000];

/** Longest time for a cancelled end to free memory, once all ranks have met for it, or to register it. */
const graceMs = 1_000;

/** One communicator: its members that live here, by rank. */
export class NcclCommunicator {
  readonly info: CommInfo;
  readonly size: number;
  /** Some of its members live in other processes. */
  readonly spansProcesses: boolean;
  readonly members: ReadonlyMap<number, LocalMember>;
  /** Those of the members that live here. */
  readonly devices: readonly Device[];
  readonly lock = new CommLock();
  readonly windows: RegisteredWindows;
  readonly graphs = new Set<CapturedGraph>();
  /** No more work goes on its ranks' streams: it was given back, or is about to be. Its waits take no more then. */
  isOver = false;
  readonly #over = new AbortController();
  /** The calls that were made here, for queries of other processes. */
  counters: CallCounters | undefined;
  readonly #nccl: NcclCalls;
  readonly #remoteErrorGrace = new RemoteErrorGrace();

  constructor(info: CommInfo, members: readonly LocalMember[], nccl: NcclCalls) {
    this.info = info;
    this.size = info.ranks.length;
    this.members = new Map(members.map((member) => [member.rank, member]));
    this.spansProcesses = this.members.size < this.size;
    this.windows = new RegisteredWindows(nccl, this.members, this.lock);
    this.devices = members.map(({ local }) => local.device);
    this.#nccl = nccl;
  }

  /** Fires when it is over. */
  get overSignal(): AbortSignal {
    return this.#over.signal;
  }

  /** It is about to be given back, for a reason where it is aborted. */
  markOver(reason?: unknown): void {
    this.isOver = true;
    this.#over.abort(reason);
    this.#remoteErrorGrace.end(reason);
  }

  /**
   * A call that another process is to blame for stays open until it is over, for which others may tell a reason, or else
   * `check` throws what went wrong. Throws what is no such fault.
   */
  deferRemoteError(error: unknown, waiting: Completion): void {
    const { counters } = this;
    const isLeft = !this.isOver && counters !== undefined;
    if (!isLeft || !this.#remoteErrorGrace.defer(error, waiting)) throw error;
    counters.disconnected = true;
  }

  /** The same for what is waited for: throws once it is over. */
  rejectAtEnd(error: unknown): Promise<never> {
    const over = asPromise((waiting) => this.deferRemoteError(error, waiting));
    return over.then(() => Promise.reject(error));
  }

  /** Collective call `number` was submitted. A call that could not be was not made: others may query the ranks that keep them waiting. */
  countSubmitted(number: number): void {
    if (this.counters !== undefined) this.counters.submitted = number + 1;
  }

  /** A member's call with what NCCL needs to make it; `endOp` comes after. */
  callArgs(call: RankCall): NcclCallArgs {
    const { handle, local } = this.members.get(call.rank) as LocalMember;
    const { device, scratch } = local;
    const op = this.createOp(call);
    const [send, recv] = [addressOf(call.send), addressOf(call.recv)];
    return { call, send, recv, comm: handle, stream: device.stream, op, size: this.size, scratch };
  }

  /** Has NCCL connect this process's rank with ranks of others, for which it waits on another thread. */
  async connect(ends: readonly ConnectEnd[]): Promise<void> {
    if (ends.length === 0) return;
    const [member] = this.members.values();
    const { handle, local } = member as LocalMember;
    const { device } = local;
    const room = { comm: handle, stream: device.stream, ...local.connectBuffers };
    const meet = () => this.#nccl.connectInBackground(device.threadDevice, room, ends);
    try {
      await this.lock.run(meet);
    } catch (error) {
      throw this.#located(member as LocalMember, error);
    }
  }

  /** The call's operator as NCCL numbers it. A pre-multiplied sum is made for the call: `endOp` ends it. */
  createOp({ op, dtype, rank }: RankCall): number {
    if (op === undefined || dtype === undefined) return 0;
    if (typeof op === "string") return reduceOps[op];
    const { handle } = this.members.get(rank) as LocalMember;
    return this.#nccl.preMulSum(scalarBytes(dtype, op.preMul), dataTypes[dtype], handle);
  }

  /** Gives back an operator that was made for a call. NCCL has read it once the call was issued. */
  destroyOp({ op, rank }: RankCall, made: number): void {
    if (op === undefined || typeof op === "string") return;
    this.#nccl.destroyOp(made, (this.members.get(rank) as LocalMember).handle);
  }

  /**
   * Gives graphs, windows and handles back; nothing of them may be under way. Ranks of other processes are waited for no
   * longer than a bound: then this process's end is aborted, with a warning. So it is, without one, when the signal fires.
   * False when either happened.
   */
  async end(calledOff: AbortSignal): Promise<boolean> {
    if (!this.spansProcesses) {
      await this.#endHere();
      return true;
    }
    // The others come to the end of the handle, also where something of it could not be given back.
    const released = (async () => runAll(this.#releases()))();
    const ends = [...this.members.values()].map(async (member) => {
      try {
        return await this.#endWithOthers(member.handle, calledOff);
      } catch (error) {
        throw this.#located(member, error);
      }
    });
    await Promise.allSettled([released, ...ends]);
    await released;
    const inTime = (await Promise.all(ends)).every((each) => each);
    if (!inTime && !calledOff.aborted) {
      process.emitWarning(
        `close: the other ranks of "${this.info.name}" did not end it within ${endMs} ms, and are not waited for`,
        { type: "TwincclClose", code: "ERR_COMM_TIMEOUT" },
      );
    }
    return inTime;
  }

  /** NCCL destroys no communicator on which something went wrong: where that is so, all ranks are aborted. */
  async #endHere(): Promise<void> {
    try {
      this.check();
    } catch (error) {
      await this.abort();
      throw error;
    }
    this.destroy();
  }

  /** The same at once, for ranks that all live here. They are no group, in which one failure would keep all handles. */
  destroy(): void {
    const ends = [...this.members.values()].map((member) => (): void => {
      this.#locatingErrors(member, () => this.#nccl.destroy(member.handle));
    });
    runAll([...this.#releases(), ...ends]);
  }

  #releases(): (() => void)[] {
    return [
      ...[...this.graphs].map((graph) => () => graph.release()),
      () => this.windows.release(),
    ];
  }

  /** NCCL's end of a communicator is a meeting of all ranks, of which each step may wait for the others. */
  async #endWithOthers(handle: bigint, calledOff: AbortSignal): Promise<boolean> {
    const nccl = this.#nccl;
    const abort = (): Promise<boolean> => settlesWithin(abortMs, nccl.abortInBackground(handle));
    const meeting = nccl.finalizeInBackground(handle);
    if (!(await settlesWithin(endMs, meeting, calledOff))) {
      // Nothing else ends a call that has begun on another thread.
      await abort();
      return false;
    }
    try {
      await meeting;
    } catch (error) {
      await abort();
      throw error;
    }
    const destroying = nccl.destroyInBackground(handle);
    // The handle is being freed: from here on it cannot be aborted.
    const inTime = await settlesWithin(endMs, destroying, calledOff);
    if (!inTime && !(calledOff.aborted && (await settlesWithin(graceMs, destroying)))) return false;
    await destroying;
    return true;
  }

  /** Ends the handles under their running calls, on other threads; done, or given up, within a bound. */
  async abort(): Promise<void> {
    // NCCL waits for graphs that hold its kernels, for ever. One that is lost must not keep the others.
    for (const graph of this.graphs) {
      try {
        graph.release();
      } catch {}
    }
    this.graphs.clear();
    if (!(await this.windows.registrationSettles(graceMs))) {
      // Aborted there while the other rank is dead, NCCL 2.28.9 corrupts the heap, which ends the process.
      process.emitWarning(
        `abort: ranks of "${this.info.name}" did not register symmetric memory together: what NCCL has of it stays until the process ends`,
        { type: "TwincclClose", code: "ERR_COMM_ABORTED" },
      );
      this.windows.abandon();
      return;
    }
    const letGo = this.windows.holdUntilHandlesEnd();
    const ends = [...this.members.values()].map(({ handle }) =>
      this.#nccl.abortInBackground(handle),
    );
    // What NCCL has not let go by then, it may use for ever.
    if (await settlesWithin(abortMs, Promise.allSettled(ends))) letGo();
  }

  /** Throws what went wrong in the background, unless others tell more of it soon. */
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

  /** Does something for a member: what goes wrong names it. */
  #locatingErrors(member: LocalMember, work: () => void): void {
    try {
      work();
    } catch (error) {
      throw this.#located(member, error);
    }
  }

  #located({ rank, local }: LocalMember, error: unknown): unknown {
    const { size, info } = this;
    return located(error, { rank, size, comm: info.name, device: local.device.name });
  }
}

/**
 * The grace period: a waiting process queries the others each second. Time in which no news could arrive, because this
 * process stood still, does not count.
 */
const [remoteErrorGraceMs, longestLookMs] = [4_000, 1_000];

/** Those of one communicator. */
class RemoteErrorGrace {
  #elapsedMs = 0;
  #lastCheckMs: number | undefined;
  #firstError: unknown;
  #deferred: Completion[] = [];
  #keepAliveTimer: NodeJS.Timeout | undefined;

  /** The error of the first call that was left open; `undefined` while none was. */
  get firstError(): unknown {
    return this.#firstError;
  }

  /** True where a fault is left open for news of other processes: for a while, and for such faults only. */
  isWithinGrace(error: unknown): boolean {
    if (!isRemoteError(error)) return false;
    const nowMs = performance.now();
    this.#elapsedMs += Math.min(nowMs - (this.#lastCheckMs ?? nowMs), longestLookMs);
    this.#lastCheckMs = nowMs;
    return this.#elapsedMs < remoteErrorGraceMs;
  }

  /** Leaves a call open that failed with such a fault; false for others. */
  defer(error: unknown, waiting: Completion): boolean {
    if (!isRemoteError(error)) return false;
    this.#firstError ??= error;
    this.#lastCheckMs ??= performance.now();
    waiting.acceptsMore = false;
    this.#deferred.push(waiting);
    // Deferred calls must get their error: the process waits for it.
    this.#keepAliveTimer ??= setInterval(() => undefined, longestTimerMs);
    return true;
  }

  /** The communicator is over, for a reason where it was aborted. */
  end(reason: unknown): void {
    const open = this.#deferred;
    this.#deferred = [];
    clearInterval(this.#keepAliveTimer);
    for (const waiting of open) waiting.settled(reason ?? this.#firstError);
  }
}

function isRemoteError(error: unknown): boolean {
  return error instanceof NcclError && error.statusName === "ncclRemoteError";
}
