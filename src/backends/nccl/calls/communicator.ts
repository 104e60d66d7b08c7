/** The NCCL communicators of the ranks of this process, by communicator of the world. */
import type { CommInfo, Completion, RankCall } from "../../../api/index.ts";
import { inTurn, promised, within } from "../common/async.ts";
import type { Device } from "../device/device.ts";
import type { Member } from "../device/local-rank.ts";
import { dataTypes, reduceOps, scalarBytes } from "../device/nccl-types.ts";
import { located, NcclError } from "../result/errors.ts";
import type { ByteEnd, NcclCalls } from "../result/nccl.ts";
import type { Made } from "./call-counters.ts";
import { OtherThreads } from "./comm-lock.ts";
import type { CapturedGraph } from "./graphs.ts";
import { addressOf, type Part } from "./nccl-steps.ts";
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
  readonly isApart: boolean;
  readonly members: ReadonlyMap<number, Member>;
  /** Those of the members that live here. */
  readonly devices: readonly Device[];
  readonly otherThreads = new OtherThreads();
  readonly windows: RegisteredWindows;
  readonly graphs = new Set<CapturedGraph>();
  /** No more work goes on its ranks' streams: it was given back, or is about to be. Its waits take no more then. */
  isOver = false;
  readonly #over = new AbortController();
  /** The calls that were made here, for queries of other processes. */
  made: Made | undefined;
  readonly #nccl: NcclCalls;
  readonly #blamedOnOthers = new BlamedOnOthers();

  constructor(info: CommInfo, members: readonly Member[], nccl: NcclCalls) {
    this.info = info;
    this.size = info.ranks.length;
    this.members = new Map(members.map((member) => [member.rank, member]));
    this.isApart = this.members.size < this.size;
    this.windows = new RegisteredWindows(nccl, this.members, this.otherThreads);
    this.devices = members.map(({ local }) => local.device);
    this.#nccl = nccl;
  }

  /** Fires when it is over. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** It is about to be given back, for a reason where it is aborted. */
  leave(reason?: unknown): void {
    this.isOver = true;
    this.#over.abort(reason);
    this.#blamedOnOthers.end(reason);
  }

  /**
   * A call that another process is to blame for stays open until it is over, for which others may tell a reason, or else
   * `check` throws what went wrong. Throws what is no such fault.
   */
  leaveOpen(error: unknown, waiting: Completion): void {
    const { made } = this;
    const isLeft = !this.isOver && made !== undefined;
    if (!isLeft || !this.#blamedOnOthers.leaveOpen(error, waiting)) throw error;
    made.isCutOff = true;
  }

  /** The same for what is waited for: throws once it is over. */
  leftOpen(error: unknown): Promise<never> {
    const over = promised((waiting) => this.leaveOpen(error, waiting));
    return over.then(() => Promise.reject(error));
  }

  /** Collective call `number` was submitted. A call that could not be was not made: others may query the ranks that keep them waiting. */
  count(number: number): void {
    if (this.made !== undefined) this.made.calls = number + 1;
  }

  /** A member's call with what NCCL needs to make it; `endOp` comes after. */
  part(call: RankCall): Part {
    const { handle, local } = this.members.get(call.rank) as Member;
    const { device, scratch } = local;
    const op = this.beginOp(call);
    const [send, recv] = [addressOf(call.send), addressOf(call.recv)];
    return { call, send, recv, comm: handle, stream: device.stream, op, size: this.size, scratch };
  }

  /** Has NCCL connect this process's rank with ranks of others, for which it waits on another thread. */
  async connect(ends: readonly ByteEnd[]): Promise<void> {
    if (ends.length === 0) return;
    const [member] = this.members.values();
    const { handle, local } = member as Member;
    const { device } = local;
    const room = { comm: handle, stream: device.stream, ...local.byteRoom };
    const meet = () => this.#nccl.connectInBackground(device.onThreads, room, ends);
    try {
      await this.otherThreads.during(meet);
    } catch (error) {
      throw this.#of(member as Member, error);
    }
  }

  /** The call's operator as NCCL numbers it. A pre-multiplied sum is made for the call: `endOp` ends it. */
  beginOp({ op, dtype, rank }: RankCall): number {
    if (op === undefined || dtype === undefined) return 0;
    if (typeof op === "string") return reduceOps[op];
    const { handle } = this.members.get(rank) as Member;
    return this.#nccl.preMulSum(scalarBytes(dtype, op.preMul), dataTypes[dtype], handle);
  }

  /** Gives back an operator that was made for a call. NCCL has read it once the call was issued. */
  endOp({ op, rank }: RankCall, made: number): void {
    if (op === undefined || typeof op === "string") return;
    this.#nccl.destroyOp(made, (this.members.get(rank) as Member).handle);
  }

  /**
   * Gives graphs, windows and handles back; nothing of them may be under way. Ranks of other processes are waited for no
   * longer than a bound: then this process's end is aborted, with a warning. So it is, without one, when the signal fires.
   * False when either happened.
   */
  async end(calledOff: AbortSignal): Promise<boolean> {
    if (!this.isApart) {
      await this.#endHere();
      return true;
    }
    // The others come to the end of the handle, also where something of it could not be given back.
    const released = (async () => inTurn(this.#releases()))();
    const ends = [...this.members.values()].map(async (member) => {
      try {
        return await this.#endWithOthers(member.handle, calledOff);
      } catch (error) {
        throw this.#of(member, error);
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
      this.#asOf(member, () => this.#nccl.destroy(member.handle));
    });
    inTurn([...this.#releases(), ...ends]);
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
    const abort = (): Promise<boolean> => within(abortMs, nccl.abortInBackground(handle));
    const meeting = nccl.finalizeInBackground(handle);
    if (!(await within(endMs, meeting, calledOff))) {
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
    const inTime = await within(endMs, destroying, calledOff);
    if (!inTime && !(calledOff.aborted && (await within(graceMs, destroying)))) return false;
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
    if (!(await this.windows.areSettled(graceMs))) {
      // Aborted there while the other rank is dead, NCCL 2.28.9 corrupts the heap, which ends the process.
      process.emitWarning(
        `abort: ranks of "${this.info.name}" did not register symmetric memory together: what NCCL has of it stays until the process ends`,
        { type: "TwincclClose", code: "ERR_COMM_ABORTED" },
      );
      this.windows.leave();
      return;
    }
    const letGo = this.windows.goWithHandles();
    const ends = [...this.members.values()].map(({ handle }) =>
      this.#nccl.abortInBackground(handle),
    );
    // What NCCL has not let go by then, it may use for ever.
    if (await within(abortMs, Promise.allSettled(ends))) letGo();
  }

  /** Throws what went wrong in the background, unless others tell more of it soon. */
  check(): void {
    for (const member of this.members.values()) {
      try {
        if (this.#blamedOnOthers.first !== undefined) throw this.#blamedOnOthers.first;
        this.#nccl.checkAsync(member.handle);
      } catch (error) {
        if (this.made !== undefined && this.#blamedOnOthers.isForOthers(error)) {
          this.made.isCutOff = true;
          continue;
        }
        throw this.#of(member, error);
      }
    }
  }

  /** Does something for a member: what goes wrong names it. */
  #asOf(member: Member, work: () => void): void {
    try {
      work();
    } catch (error) {
      throw this.#of(member, error);
    }
  }

  #of({ rank, local }: Member, error: unknown): unknown {
    const { size, info } = this;
    return located(error, { rank, size, comm: info.name, device: local.device.name });
  }
}

/**
 * The grace period: a waiting process queries the others each second. Time in which no news could arrive, because this
 * process stood still, does not count.
 */
const [remoteErrorGraceMs, longestLookMs] = [4_000, 1_000];

/** News keeps no process alive, and open calls must get their error. */
const longestTimerMs = 2 ** 31 - 1;

/** Those of one communicator. */
class BlamedOnOthers {
  #waitedMs = 0;
  #lookedMs: number | undefined;
  #first: unknown;
  #open: Completion[] = [];
  #keepsProcess: NodeJS.Timeout | undefined;

  /** The error of the first call that was left open; `undefined` while none was. */
  get first(): unknown {
    return this.#first;
  }

  /** True where a fault is left open for news of other processes: for a while, and for such faults only. */
  isForOthers(error: unknown): boolean {
    if (!isBlame(error)) return false;
    const nowMs = performance.now();
    this.#waitedMs += Math.min(nowMs - (this.#lookedMs ?? nowMs), longestLookMs);
    this.#lookedMs = nowMs;
    return this.#waitedMs < remoteErrorGraceMs;
  }

  /** Leaves a call open that failed with such a fault; false for others. */
  leaveOpen(error: unknown, waiting: Completion): boolean {
    if (!isBlame(error)) return false;
    this.#first ??= error;
    this.#lookedMs ??= performance.now();
    waiting.acceptsMore = false;
    this.#open.push(waiting);
    this.#keepsProcess ??= setInterval(() => undefined, longestTimerMs);
    return true;
  }

  /** The communicator is over, for a reason where it was aborted. */
  end(reason: unknown): void {
    const open = this.#open;
    this.#open = [];
    clearInterval(this.#keepsProcess);
    for (const waiting of open) waiting.settled(reason ?? this.#first);
  }
}

function isBlame(error: unknown): boolean {
  return error instanceof NcclError && error.statusName === "ncclRemoteError";
}
