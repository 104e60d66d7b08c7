/** An open world on GPUs: submits each complete call to NCCL on the streams of this process's ranks. */
import {
  type CallSet,
  type Capabilities,
  CommAbortedError,
  CommError,
  type CommInfo,
  type Completion,
  type Explanation,
  type Memory,
  type PlanCache,
  type Question,
  type RemoteTransfer,
  type Session,
  type Transfer,
  UnsupportedError,
} from "../../api/index.ts";
import type { NcclCommunicator } from "./calls/communicator.ts";
import { CommunicatorEnds, EndingCommunicators } from "./calls/communicator-ends.ts";
import { splitInJob, splitLocal } from "./calls/create-communicators.ts";
import type { CapturedGraph } from "./calls/graphs.ts";
import type { PreparedCall } from "./calls/prepared-call.ts";
import { Submitter } from "./calls/submitter.ts";
import { deregisterAll } from "./calls/windows.ts";
import { asPromise, keepAlive, runAll, settlesWithin } from "./common/async.ts";
import { firstLine } from "./common/text.ts";
import type { CurrentDevice, RankPlacement } from "./device/device.ts";
import { HostArrays, hostArrayError } from "./device/host-arrays.ts";
import type { LocalRank } from "./device/local-rank.ts";
import type { Progress } from "./device/progress.ts";
import { DryRun, type DryRunFacts } from "./dry-run.ts";
import type { Job } from "./job/job.ts";
import type { NcclOptions } from "./options.ts";
import { pinnedVariables } from "./process/pinned-start.ts";
import { startWithVariables, whenUnpinned, withVariables } from "./process/start-variables.ts";
import type { ConfigFields } from "./sys/layouts.ts";

/** Longest waits for running work when a session closes: before and after its communicators are aborted. */
const [closeMs, leaveMs] = [10_000, 1_000];

/** The parts of a session. */
interface SessionParts extends DryRunFacts {
  readonly current: CurrentDevice;
  readonly progress: Progress;
  /** The communicator of all ranks. */
  readonly world: NcclCommunicator;
  readonly config: ConfigFields;
  readonly timeoutMs: number | undefined;
  /** True if calls accept arrays, which are copied. */
  readonly staging?: NcclOptions["staging"];
  /** Records NCCL's plans of a communicator since the previous call. */
  readonly readPlans?: ((comm: string) => void) | undefined;
  /** The job of several processes that this process belongs to. */
  readonly job?: Job | undefined;
}

/** This process's ranks of one world. */
export class NcclSession implements Session {
  readonly backend = "nccl";
  readonly size: number;
  readonly localRanks: readonly number[];
  readonly timeoutMs: number | undefined;
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly capabilities: Capabilities;
  readonly compare: Session["compare"];
  readonly peerBarrier: Session["peerBarrier"];
  readonly exchangeBarrier: Session["exchangeBarrier"];
  readonly peers: Session["peers"];
  readonly #parts: SessionParts;
  readonly #progress: Progress;
  /** Present if calls accept arrays. */
  readonly #arrays: HostArrays | undefined;
  readonly #submitter: Submitter;
  readonly #locals: ReadonlyMap<number, LocalRank>;
  readonly #comms = new Map<number, NcclCommunicator>();
  readonly #ending = new EndingCommunicators((error) => {
    this.#failure ??= { error };
  });
  readonly #ends: CommunicatorEnds;
  /** Reasons of aborted communicators, by their number. */
  readonly #reasons = new Map<number, unknown>();
  /** First error of freeing memory; `close` throws it. */
  #failure: { readonly error: unknown } | undefined;
  #closing: Promise<void> | undefined;
  readonly #dryRun: DryRun;

  constructor(parts: SessionParts) {
    const { world, job, timeoutMs, libraries } = parts;
    this.#parts = parts;
    this.#progress = parts.progress;
    this.#arrays = parts.staging === "copy" ? new HostArrays(this) : undefined;
    this.#submitter = new Submitter(parts, this.#arrays);
    this.#dryRun = new DryRun(parts, world.size);
    this.capabilities = {
      hostArrays: parts.staging === "copy",
      virtualTime: false,
      deterministic: true,
      symmetricMemory: libraries.nccl.hasWindows,
    };
    this.size = world.size;
    this.localRanks = world.info.local;
    this.timeoutMs = timeoutMs;
    this.generation = (job?.generation ?? 0) + 1;
    this.initialRanks = job?.initialRanks ?? world.info.ranks;
    this.#locals = new Map([...world.members.values()].map(({ rank, local }) => [rank, local]));
    this.#add(world);
    const { crossCheck, firstContacts } = job ?? {};
    if (crossCheck?.isEnabled === true) this.compare = crossCheck.compare.bind(crossCheck);
    const open = ({ id }: CommInfo): NcclCommunicator | undefined => this.#comms.get(id);
    this.peerBarrier = firstContacts && ((set) => firstContacts.forCall(open(set.comm), set));
    this.exchangeBarrier =
      firstContacts && ((info, halves) => firstContacts.forMessages(open(info), halves));
    this.peers = job;
    this.#ends = new CommunicatorEnds(job);
    job?.onLost((rank) => this.#ends.lost(rank));
    closeAtEnd(this);
    for (const local of this.#locals.values()) {
      local.beforeFree = (ptr) => {
        const comms = [...this.#comms.values(), ...this.#ending.comms];
        return this.#keepFailure(() => deregisterAll(comms, local.worldRank, ptr));
      };
    }
  }

  device(rank: number): string {
    return this.#local(rank).device.name;
  }

  stream(rank: number): bigint {
    const { device } = this.#local(rank);
    device.share();
    return device.stream;
  }

  /** Device and stream of a rank of this process. */
  place(rank: number): RankPlacement {
    const { index, givenStream } = this.#local(rank).device;
    return { device: index, stream: givenStream };
  }

  allocate(rank: number, byteLength: number, symmetric = false): Memory {
    return this.#local(rank).allocate(byteLength, symmetric);
  }

  adopt(rank: number, ptr: bigint, byteLength: number): Memory {
    return this.#local(rank).adopt(ptr, byteLength);
  }

  borrow(rank: number, buffer: ArrayBufferLike): Memory {
    if (this.#arrays !== undefined) return this.#arrays.borrow(buffer);
    throw hostArrayError(rank);
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

  wakeOrder(set: CallSet | undefined): readonly number[] {
    return Array.from({ length: set?.calls.length ?? this.size }, (_, rank) => rank);
  }

  execute(set: CallSet): Promise<void> {
    return asPromise((waiting) => this.enqueue(set, waiting));
  }

  enqueue(set: CallSet, waiting: Completion): void {
    this.#submitter.call(this.#comm(set.comm), set, waiting);
  }

  enqueueRepeated({ planned }: PlanCache, number: number, waiting: Completion): void {
    const { comm } = planned as PreparedCall;
    if (comm.isOver) throw this.#aborted(comm.info);
    this.#submitter.replay(planned as PreparedCall, number, waiting);
  }

  appendRepeated({ planned }: PlanCache, number: number): void {
    (planned as PreparedCall).replay(number);
  }

  exchange(
    comm: CommInfo,
    transfers: readonly Transfer[],
    halves: readonly RemoteTransfer[],
  ): Promise<void> {
    return asPromise((waiting) => this.enqueueExchange(comm, transfers, halves, waiting));
  }

  enqueueExchange(
    comm: CommInfo,
    transfers: readonly Transfer[],
    halves: readonly RemoteTransfer[],
    waiting: Completion,
  ): void {
    this.#submitter.messages(this.#comm(comm), { transfers, halves }, waiting);
  }

  /** Records collective calls as CUDA graphs. */
  capture(info: CommInfo, recorded: readonly CallSet[]): CapturedGraph {
    const comm = this.#comm(info);
    const rows = recorded.map(({ calls }) => calls);
    const graph = this.#submitter.record(comm, rows);
    comm.graphs.add(graph);
    return graph;
  }

  /** Releases a rank's part of one recording, or of all recordings of a communicator. */
  discard(info: CommInfo, rank: number, which?: object): void {
    const comm = this.#comms.get(info.id);
    const local = comm?.members.get(rank)?.local;
    if (comm === undefined || local === undefined) return;
    for (const graph of comm.graphs) {
      if (which !== undefined && graph !== which) continue;
      this.#keepFailure(() => graph.discard(local));
      if (graph.isOver) comm.graphs.delete(graph);
    }
  }

  /** Creates the communicators of a complete split. */
  split(set: CallSet, children: readonly CommInfo[]): void | Promise<void> {
    const parent = this.#comm(set.comm);
    const created = createChildren(this.#parts, parent, set, children);
    const open = (comms: readonly NcclCommunicator[]): void => {
      if (parent.isOver) {
        abortAll(comms);
        throw this.#aborted(set.comm);
      }
      this.#parts.job?.addChildren(set.comm, set.number, children);
      for (const comm of comms) this.#add(comm);
      this.#parts.readPlans?.(children.map(({ name }) => name).join(" and "));
    };
    return created instanceof Promise ? created.then(open) : open(created);
  }

  /** Aborts a communicator: its running calls reject, and its kernels leave the devices. */
  abort(info: CommInfo, reason: unknown): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#reasons.set(info.id, reason);
    const error = reason ?? this.#aborted(info);
    this.#parts.job?.aborted(info, error);
    this.#retire(comm, error);
    this.#progress.rejectOwner(comm, error);
    this.#ending.add([comm], comm.abort());
  }

  /** Releases the communicator once its devices are idle. */
  releaseComm(info: CommInfo): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#retire(comm);
    const devices = [...comm.members.values()].map(({ local }) => local.device);
    const idle = this.#progress.after(devices);
    this.#ending.add(
      [comm],
      idle.then(() => this.#ends.end(comm)),
    );
  }

  onLost(listener: (rank: number, reason: string) => void): void {
    this.#parts.job?.onLost(listener);
  }

  async rejoin(without: readonly number[] | undefined): Promise<Session> {
    const { job } = this.#parts;
    if (job === undefined) {
      const hint = "close it and connect again";
      throw new UnsupportedError({ headline: "rebuild: this job has one process", hint });
    }
    job.beginRebuild();
    // Lost or excluded ranks do not take part in ending communicators.
    this.#ends.detach();
    // An error of freeing memory is reported once, and delays no rank.
    const closing = this.#closing?.catch(() => undefined);
    this.#closing ??= this.#close();
    return job.rejoin(without, closing ?? this.#closing);
  }

  close(): Promise<void> {
    closedBefore(this);
    this.#closing ??= this.#close();
    return this.#closing.finally(() => this.#parts.job?.leave());
  }

  /**
   * Ends the newest communicators first, then memory and streams. Resources that an abort cannot free in time are abandoned.
   */
  async #close(): Promise<void> {
    const { current } = this.#parts;
    const locals = [...this.#locals.values()];
    let lost = false;
    const idle = (): Promise<void> =>
      this.#progress.after(locals.map(({ device }) => device)).catch(() => {
        lost = true;
      });
    // Ending communicators may depend on others that end below, so that this waits for their streams alone.
    if (!(await settlesWithin(closeMs, idle()))) {
      // A rank of another process may never arrive: an abort removes the kernels that wait for it.
      for (const { info } of this.#comms.values()) this.abort(info, undefined);
      if (!(await settlesWithin(closeMs + leaveMs, idle()))) {
        for (const local of locals) local.abandon();
        this.#progress.abandon(this.#aborted(this.#parts.world.info));
        return;
      }
    }
    const comms = [...this.#comms.values()].reverse();
    for (const comm of comms) this.#retire(comm);
    current.invalidate();
    this.#ending.add(comms, this.#ends.endInOrder(comms));
    await this.#ending.allEnded();
    current.invalidate();
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

  /** Adds a communicator; in a job, with its call counters. */
  #add(comm: NcclCommunicator): void {
    this.#comms.set(comm.info.id, comm);
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
    throw this.#aborted(info);
  }

  #aborted({ id, name }: CommInfo): CommAbortedError {
    const cause = this.#reasons.get(id);
    const why = cause instanceof CommError ? `: ${firstLine(cause)}` : "";
    return new CommAbortedError(
      {
        headline: `"${name}" was aborted, and its NCCL communicators with it${why}`,
        hint: "world.rebuild() makes new ones",
      },
      { comm: name, cause },
    );
  }

  #local(rank: number): LocalRank {
    return this.#locals.get(rank) as LocalRank;
  }
}

interface Closable {
  close(): Promise<void>;
}

const open = new Set<Closable>();
let listening = false;

/** Closes a session that the program left open, before Node.js exits (`beforeExit`). */
function closeAtEnd(session: Closable): void {
  open.add(session);
  if (listening) return;
  listening = true;
  process.on("beforeExit", () => {
    for (const each of open) {
      open.delete(each);
      // No caller remains to receive an error.
      each.close().catch(() => undefined);
    }
  });
}

/** Removes a session that was closed. */
function closedBefore(session: Closable): void {
  open.delete(session);
}

/** Creates child communicators: on this thread or, in a job, on another thread, where NCCL waits for the other processes. */
function createChildren(
  { libraries, current, config, pin = {}, job }: SessionParts,
  parent: NcclCommunicator,
  { calls }: CallSet,
  children: readonly CommInfo[],
): NcclCommunicator[] | Promise<NcclCommunicator[]> {
  const { nccl } = libraries;
  const variables = pinnedVariables(pin);
  if (job === undefined) {
    // The split may have to wait. If the parent has ended meanwhile, its handles are invalid, and no child is created.
    const splitHere = () =>
      parent.isOver ? [] : splitLocal(nccl, current, parent, calls, children, config);
    return whenUnpinned(() => withVariables(variables, splitHere));
  }
  let started: Promise<NcclCommunicator[]> | undefined;
  const begin = (): Promise<NcclCommunicator[]> => {
    const apart = () => splitInJob(nccl, current, parent, children, config);
    started = parent.lock.run(apart);
    return started;
  };
  const creation = startWithVariables(variables, begin, parent.overSignal).catch(
    (error: unknown) => {
      // Communicators that NCCL creates after the failure have no owner.
      started?.then(abortAll, () => undefined);
      throw error;
    },
  );
  return keepAlive(creation.catch((error) => parent.rejectAtEnd(error)));
}

/** Aborts communicators that no session uses. */
function abortAll(comms: readonly NcclCommunicator[]): void {
  for (const comm of comms) void comm.abort();
}
