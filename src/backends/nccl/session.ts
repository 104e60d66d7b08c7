/** An open world on GPUs: submits each complete call to NCCL on the streams of this process's ranks. */
import {
  type CallSet,
  type CommInfo,
  type Completion,
  inRankOrder,
  type Memory,
  type QueueingSession,
  type RankDevice,
  type RecordedWork,
  type Scheduler,
  type SessionInfo,
  type Work,
} from "../../api/backend-entry.ts";
import type { Explanation, Question } from "../../api/index.ts";
import { runAll } from "../../api/run-all.ts";
import { cancelCloseOnExit, closeOnExit, keepAlive, settlesWithin } from "../../job/async.ts";
import type { Job } from "../../job/job.ts";
import { abortedError, type NcclCommunicator } from "./calls/communicator.ts";
import { CommunicatorEnds, EndingCommunicators } from "./calls/communicator-ends.ts";
import { splitInJob, splitLocal } from "./calls/create-communicators.ts";
import type { CapturedGraph } from "./calls/graphs.ts";
import { Submitter } from "./calls/submitter.ts";
import { deregisterAll } from "./calls/windows.ts";
import { forgetCurrentDevice, type RankPlacement } from "./device/device.ts";
import { HostArrays } from "./device/host-arrays.ts";
import type { LocalRank } from "./device/local-rank.ts";
import type { LocalStream } from "./device/local-stream.ts";
import { asPromise, type Progress } from "./device/progress.ts";
import { DryRun, type DryRunFacts } from "./dry-run.ts";
import type { NcclOptions } from "./options.ts";
import { processSettings } from "./process/process-settings.ts";
import { afterStarts, startWithVariables, withVariables } from "./process/start-variables.ts";
import type { ConfigFields } from "./sys/layouts.ts";

/** Longest waits for running work when a session closes: before and after its communicators are aborted. */
const [closeMs, leaveMs] = [10_000, 1_000];

/** The parts of a session. */
export interface SessionParts extends DryRunFacts {
  readonly progress: Progress;
  /** The communicator of all ranks. */
  readonly world: NcclCommunicator;
  readonly config: ConfigFields;
  readonly timeoutMs: number | undefined;
  /** "copy" if calls accept arrays, which are copied. */
  readonly staging?: NcclOptions["staging"];
  /** Records NCCL's plans of a communicator since the previous call. */
  readonly readPlans?: ((comm: string) => void) | undefined;
  /** The job of several processes that this process belongs to. */
  readonly job?: Job | undefined;
}

/** This process's ranks of one world. */
export class NcclSession implements QueueingSession {
  readonly info: SessionInfo;
  readonly scheduler: Scheduler;
  readonly observer = undefined;
  readonly #parts: SessionParts;
  readonly #progress: Progress;
  readonly #submitter: Submitter;
  /** By world rank. */
  readonly #devices: ReadonlyMap<number, NcclRankDevice>;
  readonly #comms = new Map<number, NcclCommunicator>();
  readonly #ending = new EndingCommunicators((error) => {
    this.#failure ??= { error };
  });
  readonly #ends: CommunicatorEnds;
  /** Reasons of aborted communicators that are not released, by their number. */
  readonly #reasons = new Map<number, unknown>();
  /** First error of freeing memory; `close` throws it. */
  #failure: { readonly error: unknown } | undefined;
  #closing: Promise<void> | undefined;
  readonly #dryRun: DryRun;

  constructor(parts: SessionParts) {
    const { world, job, timeoutMs, libraries } = parts;
    this.#parts = parts;
    this.#progress = parts.progress;
    const { size, info, members } = world;
    const arrays = new HostArrays(this);
    this.#submitter = new Submitter(libraries.nccl, arrays, parts.readPlans);
    this.#dryRun = new DryRun(parts, size);
    this.info = {
      backend: "nccl",
      size,
      localRanks: info.local,
      capabilities: {
        hostArrays: parts.staging === "copy",
        virtualTime: false,
        deterministic: true,
        symmetricMemory: libraries.nccl.hasWindows,
        ownStreams: true,
      },
      timeoutMs,
    };
    this.scheduler = inRankOrder(size);
    this.#devices = new Map(
      Array.from(members.values(), ({ rank, local }) => [
        rank,
        new NcclRankDevice(local, arrays, (comm) => this.#comms.get(comm.id)),
      ]),
    );
    this.#add(world);
    this.#ends = new CommunicatorEnds(job);
    job?.onLost((rank) => this.#ends.lost(rank));
    job?.onRemoteEnd(() => {
      for (const comm of this.#comms.values()) {
        if (job.isBrokenOff(comm.info)) comm.withholdResults();
      }
    });
    closeOnExit(this);
    for (const local of this.#locals()) {
      local.beforeFree = (ptr) => {
        const comms = this.#notEnded();
        return this.#keepFailure(() => deregisterAll(comms, local.worldRank, ptr));
      };
    }
  }

  device(rank: number): NcclRankDevice {
    return this.#devices.get(rank) as NcclRankDevice;
  }

  /** Device and stream of a rank of this process. */
  place(rank: number): RankPlacement {
    const { index, givenStream } = this.device(rank).local.device;
    return { device: index, stream: givenStream };
  }

  refusal(question: Question, comm: CommInfo): string | undefined {
    return this.#dryRun.refusal(question, comm);
  }

  explain(question: Question, comm: CommInfo, rank: number): Explanation {
    return this.#dryRun.explain(question, comm, rank);
  }

  estimate(question: Question, info: CommInfo): number {
    return this.#dryRun.estimateNs(question, this.#comm(info));
  }

  execute(work: Work): Promise<void> {
    return asPromise((completion) => this.submit(work, completion));
  }

  submit(work: Work, completion: Completion): void {
    const comm = this.#comm(work.comm);
    if ("transfers" in work) this.#submitter.messages(comm, work, completion);
    else this.#submitter.call(comm, work, completion);
  }

  /** Records calls as CUDA graphs. */
  capture(info: CommInfo, recorded: readonly RecordedWork[]): CapturedGraph {
    const comm = this.#comm(info);
    const graph = this.#submitter.record(comm, recorded);
    comm.graphs.add(graph);
    return graph;
  }

  /** Releases a rank's part of one recording, or of all recordings of a communicator. */
  discard(info: CommInfo, rank: number, which?: object): void {
    const comm = this.#comms.get(info.id);
    const member = comm?.members.get(rank);
    if (comm === undefined || member === undefined) return;
    for (const graph of comm.graphs) {
      if (which !== undefined && graph !== which) continue;
      this.#keepFailure(() => comm.discard(member, graph));
      if (graph.isOver) comm.graphs.delete(graph);
    }
  }

  /** Creates the communicators of a complete split. */
  split(set: CallSet, children: readonly CommInfo[]): void | Promise<void> {
    const parent = this.#comm(set.comm);
    const discard = (comms: readonly NcclCommunicator[]): void => {
      for (const comm of comms) this.#ending.add(comm, comm.abortWhileIdle());
    };
    const open = (comms: readonly NcclCommunicator[]): void => {
      if (parent.isOver) {
        discard(comms);
        throw abortedError(set.comm, parent.abortReason);
      }
      this.#parts.job?.addChildren(set.comm, set.number, children);
      for (const comm of comms) this.#add(comm);
      this.#parts.readPlans?.(children.map(({ name }) => name).join(" and "));
    };
    const create = () => createChildren(this.#parts, parent, set, children, discard);
    // In a job the hold has the split wait for communicators that are being freed: their memory is needed.
    const isFreeing = this.#parts.job === undefined && this.#ending.comms.length > 0;
    const created = isFreeing ? this.#ending.allEnded().then(create) : create();
    return created instanceof Promise ? created.then(open) : open(created);
  }

  /** Aborts a communicator: its running calls reject, and its kernels leave the devices. */
  abort(info: CommInfo, reason: unknown): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#reasons.set(info.id, reason);
    comm.abortReason = reason;
    const error = reason ?? abortedError(info, undefined);
    const hadWork = comm.mayHaveWork;
    this.#parts.job?.aborted(info, error, hadWork);
    this.#retire(comm, error);
    comm.progress.rejectOwner(comm, error);
    this.#ending.add(comm, hadWork ? this.#breakOff(comm) : comm.abortWhileIdle());
  }

  /**
   * Aborts handles with work under way, once the other processes withhold results: a kernel that NCCL aborts sends what it has,
   * and with that the kernels of other ranks end as if their calls were complete.
   */
  #breakOff(comm: NcclCommunicator): Promise<void> {
    return comm.abort(comm.spansProcesses ? this.#parts.job?.othersKnow(comm.info) : undefined);
  }

  /** Releases the communicator once its devices are idle. */
  release(info: CommInfo): void {
    this.#reasons.delete(info.id);
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#retire(comm);
    this.#ending.add(comm, this.#endOnceIdle(comm));
  }

  /** A device that cannot be queried keeps no handle and no window. */
  async #endOnceIdle(comm: NcclCommunicator): Promise<void> {
    try {
      await comm.idle();
    } finally {
      await this.#ends.end(comm);
    }
  }

  /** The communicator of calls; `undefined` for one that is over. */
  protected openCommunicator({ id }: CommInfo): NcclCommunicator | undefined {
    return this.#comms.get(id);
  }

  /** Closes this generation of a job, without its lost ranks; the job goes on. */
  protected endGeneration(): Promise<void> {
    // Lost or excluded ranks do not take part in ending communicators.
    this.#ends.detach();
    // An error of freeing memory is reported once, and delays no rank.
    const closing = this.#closing?.catch(() => undefined);
    this.#closing ??= this.#close();
    return closing ?? this.#closing;
  }

  close(): Promise<void> {
    cancelCloseOnExit(this);
    this.#closing ??= this.#close();
    return this.#closing.finally(() => this.#parts.job?.leave());
  }

  /**
   * Ends all communicators at the same time, then frees memory and streams. Resources that an abort cannot free in time are abandoned.
   */
  async #close(): Promise<void> {
    const locals = this.#locals();
    let lost = false;
    const idle = async (): Promise<void> => {
      const main = this.#progress.after(locals.map(({ device }) => device));
      const own = this.#notEnded().map((comm) => comm.idle());
      await Promise.all([main, ...own]).catch(() => {
        lost = true;
      });
    };
    // Ending communicators may depend on others that end below, so that this waits for their streams alone.
    if (!(await settlesWithin(closeMs, idle()))) {
      // A rank of another process may never arrive: an abort removes the kernels that wait for it.
      for (const { info } of this.#comms.values()) this.abort(info, undefined);
      if (!(await settlesWithin(closeMs + leaveMs, idle()))) {
        const { info, abortReason } = this.#parts.world;
        const error = abortedError(info, abortReason);
        for (const local of locals) local.abandon();
        this.#progress.abandon(error);
        for (const { progress } of this.#notEnded()) progress.abandon(error);
        return;
      }
    }
    const comms = [...this.#comms.values()].reverse();
    for (const comm of comms) this.#retire(comm);
    forgetCurrentDevice();
    for (const comm of comms) this.#ending.add(comm, this.#ends.end(comm));
    await this.#ending.allEnded();
    forgetCurrentDevice();
    this.#keepFailure(() =>
      runAll([() => this.#progress.release(), ...locals.map((local) => () => local.release())]),
    );
    // If the devices were lost, errors of freeing their memory add no information.
    if (this.#failure !== undefined && !lost) throw this.#failure.error;
  }

  /** Runs `work`; false if it returns false or throws. `close` throws the first error. */
  #keepFailure(work: () => unknown): boolean {
    try {
      return work() !== false;
    } catch (error) {
      this.#failure ??= { error };
      return false;
    }
  }

  /** Aborts communicators with an asynchronous error, which fails their open calls. */
  checkAll(): void {
    for (const comm of this.#comms.values()) {
      try {
        comm.check();
      } catch (error) {
        this.abort(comm.info, error);
      }
    }
  }

  /** Communicators that have handles or streams. */
  #notEnded(): NcclCommunicator[] {
    return [...this.#comms.values(), ...this.#ending.comms];
  }

  /** Adds a communicator; in a job, with its call counters. */
  #add(comm: NcclCommunicator): void {
    this.#comms.set(comm.info.id, comm);
    comm.outOfStep = (error) => this.abort(comm.info, error);
    comm.counters = this.#parts.job?.countersOf(comm.info);
  }

  /** Marks a communicator as ended: it accepts no more calls. */
  #retire(comm: NcclCommunicator, reason?: unknown): void {
    comm.markOver(reason);
    this.#comms.delete(comm.info.id);
    this.#parts.job?.retire(comm.info);
  }

  #comm(info: CommInfo): NcclCommunicator {
    const comm = this.#comms.get(info.id);
    if (comm !== undefined) return comm;
    throw abortedError(info, this.#reasons.get(info.id));
  }

  #locals(): LocalRank[] {
    return Array.from(this.#devices.values(), ({ local }) => local);
  }
}

/** The device of one rank of this process, for programs. */
class NcclRankDevice implements RankDevice {
  readonly name: string;
  readonly local: LocalRank;
  readonly #arrays: HostArrays;
  readonly #find: (comm: CommInfo) => NcclCommunicator | undefined;

  /** `find` gives communicators that are open. */
  constructor(
    local: LocalRank,
    arrays: HostArrays,
    find: (comm: CommInfo) => NcclCommunicator | undefined,
  ) {
    this.name = local.device.name;
    this.local = local;
    this.#arrays = arrays;
    this.#find = find;
  }

  /** The stream is shared with the caller's own work from now on. */
  streamOf(comm: CommInfo): bigint | undefined {
    if (comm.ownStream !== true) return this.local.device.lendStream();
    return this.#ownStreamOf(comm)?.device.lendStream();
  }

  allocate(byteLength: number, symmetric: boolean, comm?: CommInfo): Memory {
    const ownStream = comm?.ownStream === true ? this.#ownStreamOf(comm) : undefined;
    return this.local.allocate(byteLength, symmetric, ownStream);
  }

  adopt(ptr: bigint, byteLength: number): Memory {
    return this.local.adopt(ptr, byteLength);
  }

  borrow(buffer: ArrayBufferLike): Memory {
    return this.#arrays.borrow(buffer);
  }

  /** The rank's own stream of an open communicator. */
  #ownStreamOf(comm: CommInfo): LocalStream | undefined {
    const rank = comm.ranks.indexOf(this.local.worldRank);
    return this.#find(comm)?.members.get(rank)?.stream;
  }
}

/**
 * Creates child communicators: on this thread or, in a job, on another thread, where NCCL waits for the other processes. Those
 * that NCCL creates after a failure are discarded.
 */
function createChildren(
  { libraries, config, pin = {}, job }: SessionParts,
  parent: NcclCommunicator,
  { calls }: CallSet,
  children: readonly CommInfo[],
  discard: (comms: readonly NcclCommunicator[]) => void,
): NcclCommunicator[] | Promise<NcclCommunicator[]> {
  processSettings.assertNothingShared();
  const { nccl } = libraries;
  const { variables = {} } = pin;
  if (job === undefined) {
    // The split may have to wait. If the parent has ended meanwhile, its handles are invalid, and no child is created.
    const splitHere = () =>
      parent.isOver ? [] : splitLocal(nccl, parent, calls, children, config);
    const hasOwn = Object.keys(variables).length > 0;
    return afterStarts(hasOwn, () => withVariables(variables, splitHere));
  }
  let started: Promise<NcclCommunicator[]> | undefined;
  const begin = (): Promise<NcclCommunicator[]> => {
    const apart = () => splitInJob(nccl, parent, children, config);
    started = parent.lock.run(apart);
    return started;
  };
  const creation = startWithVariables(variables, begin, parent.overSignal).catch(
    (error: unknown) => {
      // Communicators that NCCL creates after the failure have no owner.
      started?.then(discard, () => undefined);
      throw error;
    },
  );
  return keepAlive(creation.catch((error) => parent.rejectAtEnd(error)));
}
