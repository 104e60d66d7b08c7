/** An open rank: runs its part of each complete call over connections to the other ranks. */
import { AddressSpace, HostDevice, HostMemory } from "../../algorithms/host-memory.ts";
import {
  execute,
  type Link,
  type Plan,
  type Planner,
  type Program,
  packed,
} from "../../algorithms/index.ts";
import { inputBlocks, outputBlocks, overlaps } from "../../algorithms/layout.ts";
import {
  explainCall,
  planOf,
  planQuestion,
  reduceOfBlock,
  symmetricRefusal,
} from "../../algorithms/plans/index.ts";
import {
  type CallSet,
  type CommInfo,
  type CompareDigests,
  type Exchange,
  inRankOrder,
  type JobSession,
  memoryOf,
  type PeerProcesses,
  type RankCall,
  type RankDevice,
  type Scheduler,
  type Session,
  type SessionInfo,
  type Work,
} from "../../api/backend-entry.ts";
import { hasUnevenBlocks } from "../../api/collectives/call-layout.ts";
import { getOrCreate } from "../../api/get-or-create.ts";
import {
  BackendUnavailableError,
  CommAbortedError,
  type DeviceBuffer,
  type Explanation,
  type Question,
  RankLostError,
  UnsupportedError,
} from "../../api/index.ts";
import { cancelCloseOnExit, closeOnExit } from "../../job/async.ts";
import { faultOf, isOutOfFiles, outOfFilesHint } from "../../job/connection.ts";
import type { Job } from "../../job/job.ts";
import { CallRun } from "./call-run.ts";
import { Losses } from "./losses.ts";
import type { Peers } from "./peers.ts";
import { TransferRun } from "./transfers.ts";
import { type CallData, type RankMemory, slicesOf } from "./values.ts";
import { commNumber } from "./wire.ts";

/** Settings of a session. */
export interface SessionSettings {
  readonly planner: Planner;
  readonly link: Link;
  readonly timeoutMs: number | undefined;
  /**
   * Grace period of a loss. When a connection ends, the store has this time to report the end of the rank; then the
   * end of the connection fails its calls. When the store reports a lost rank, calls under way have this time to complete.
   */
  readonly lossGraceMs: number;
}

/** The parts of a session. */
export interface SessionParts extends SessionSettings {
  readonly peers: Peers;
  /** The communicator of all ranks. */
  readonly info: CommInfo;
  readonly job?: Job | undefined;
}

/** A call or a message under way. */
interface Run {
  readonly done: Promise<void>;
  start(): void;
  /** True while it has messages for a world rank, or from it. */
  needs(worldRank: number): boolean;
  fail(error: unknown): void;
}

/** A communicator that takes calls. */
interface OpenCommunicator {
  readonly info: CommInfo;
  /** Its number on connections. */
  readonly commNumber: number;
  /** Number of the next collective program. */
  sequence: number;
  readonly runs: Set<Run>;
}

/** The rank of this process. */
export class TcpSession implements Session {
  readonly info: SessionInfo;
  readonly scheduler: Scheduler;
  readonly observer = undefined;
  readonly #parts: SessionParts;
  readonly #device: HostDevice;
  readonly #comms = new Map<number, OpenCommunicator>();
  protected readonly losses: Losses;
  /** Keeps the process alive while work is under way. */
  readonly #alive = setInterval(() => undefined, 2 ** 30);
  #running = 0;
  #closing: Promise<void> | undefined;

  constructor(parts: SessionParts) {
    const { info, peers, timeoutMs } = parts;
    const size = info.ranks.length;
    this.#parts = parts;
    this.losses = new Losses((lost) => this.#mayComplete(lost), parts.lossGraceMs);
    this.info = {
      backend: "tcp",
      size,
      localRanks: info.local,
      capabilities: {
        hostArrays: true,
        virtualTime: false,
        deterministic: true,
        symmetricMemory: true,
        ownStreams: true,
      },
      timeoutMs,
    };
    this.scheduler = inRankOrder(size);
    this.#device = new HostDevice("tcp", info.local[0] as number, new AddressSpace());
    this.#alive.unref();
    this.#open(info);
    peers.onEnd = (rank, reason) => this.#connectionEnded(rank, reason);
    closeOnExit(this);
  }

  device(): RankDevice {
    return this.#device;
  }

  refusal(question: Question, comm: CommInfo): string | undefined {
    return symmetricRefusal(this.#parts.planner, question, comm);
  }

  explain(question: Question, comm: CommInfo, rank: number): Explanation {
    return explainCall(this.#parts.planner, this.#parts.link, question, comm, rank);
  }

  estimate(question: Question, comm: CommInfo): number {
    return this.explain(question, comm, 0).predictedNs;
  }

  async execute(work: Work): Promise<void> {
    const comm = this.#comms.get(work.comm.id);
    if (comm === undefined) throw abortedError(work.comm);
    this.#begin();
    try {
      if ("transfers" in work) await this.#exchange(comm, work);
      else await this.#call(comm, work);
    } finally {
      this.#end();
    }
  }

  async #call(comm: OpenCommunicator, set: CallSet): Promise<void> {
    const { job, planner } = this.#parts;
    if (job !== undefined) job.countersOf(comm.info).submitted = set.number + 1;
    const call = set.calls[0] as RankCall;
    if (!planner.reducesEachRoot(planQuestion(call, comm.info))) {
      return this.#run(comm, this.#callRun(comm, set, this.#dataOf(comm, set, call)));
    }
    for (const [root, count] of (call.sendCounts ?? []).entries()) {
      if (count === 0) continue;
      const part = reduceOfBlock(call, root, count);
      await this.#run(comm, this.#callRun(comm, set, prepare(planner, comm.info, part)));
    }
  }

  #dataOf(comm: OpenCommunicator, { cache }: CallSet, call: RankCall): CallData {
    const known = cache?.planned as CallData | undefined;
    if (known !== undefined) return known;
    const data = prepare(this.#parts.planner, comm.info, call);
    // A copy of an input is of one call.
    if (cache !== undefined && !data.isCopied) cache.planned = data;
    return data;
  }

  #callRun(comm: OpenCommunicator, set: CallSet, data: CallData): CallRun {
    const { peers, info } = this.#parts;
    const sequence = (2 * comm.sequence++) >>> 0;
    const rank = comm.info.ranks.indexOf(info.local[0] as number);
    const { ranks, name } = comm.info;
    const { collective, number } = set;
    return new CallRun({
      peers,
      comm: comm.commNumber,
      ranks,
      rank,
      sequence,
      data,
      collective,
      name,
      number,
    });
  }

  async #exchange(comm: OpenCommunicator, { transfers, remote }: Exchange): Promise<void> {
    const { peers, job } = this.#parts;
    job?.countersOf(comm.info).messagesSubmitted(remote);
    const sent = transfers.map(({ send }) => bytesIn(send.send).slice());
    for (const [i, { recv }] of transfers.entries()) bytesIn(recv.recv).set(sent[i] as Uint8Array);
    const { ranks, name } = comm.info;
    const runs = remote.map((transfer) => {
      const memory = memoryRange(transfer.call[transfer.direction]) as RankMemory;
      return new TransferRun({ peers, comm: comm.commNumber, ranks, name, transfer, memory });
    });
    await Promise.all(runs.map((run) => this.#run(comm, run)));
  }

  async #run(comm: OpenCommunicator, run: Run): Promise<void> {
    // The communicator may have ended between two reduces of one call.
    if (this.#comms.get(comm.info.id) !== comm) throw abortedError(comm.info);
    comm.runs.add(run);
    try {
      run.start();
      this.#failIfEnded(comm);
      this.losses.review();
      await run.done;
    } finally {
      comm.runs.delete(run);
      this.losses.review();
    }
  }

  /** A connection that had ended before the call fails it too, unless the messages were there. */
  #failIfEnded(comm: OpenCommunicator): void {
    for (const [rank, reason] of this.#parts.peers.ends) {
      if (comm.info.ranks.includes(rank)) this.#connectionEnded(rank, reason);
    }
  }

  /** Calls and messages under way on communicators with a world rank. */
  #runsWith(rank: number): { readonly info: CommInfo; readonly run: Run }[] {
    return [...this.#comms.values()]
      .filter(({ info }) => info.ranks.includes(rank))
      .flatMap(({ info, runs }) => Array.from(runs, (run) => ({ info, run })));
  }

  /**
   * True while all that is under way with a lost rank may complete: messages of it, or of others, may come still. Where nothing is
   * under way, a later call may take what it has sent, or what others pass on.
   */
  #mayComplete(lost: number): boolean {
    const { peers, job } = this.#parts;
    const runs = this.#runsWith(lost);
    // A connection to another rank may have ended by this loss.
    const cut = [lost, ...peers.ends.keys()].filter(
      (rank) => !peers.mayReceiveFrom(rank) && !peers.holdsMessagesOf(rank),
    );
    const isEnded = ({ info, run }: (typeof runs)[number]): boolean =>
      cut.some((rank) => run.needs(rank)) || job?.remoteEnd(info) !== undefined;
    return !runs.some(isEnded);
  }

  #connectionEnded(rank: number, reason: string): void {
    this.losses.review();
    const runs = this.#runsWith(rank).filter(({ run }) => run.needs(rank));
    if (runs.length === 0) return;
    if (isOutOfFiles(reason)) {
      for (const { info, run } of runs) run.fail(outOfFilesError(info, rank, reason));
      return;
    }
    // Its last messages may be there still. A rank that closed or was lost has news in the store, with better reasons.
    setTimeout(() => {
      for (const { info, run } of runs) {
        // The error of an end in the store comes from the world.
        const hasNews = this.#parts.job?.remoteEnd(info) !== undefined;
        if (run.needs(rank) && !hasNews) run.fail(connectionError(info, rank, reason));
      }
    }, this.#parts.lossGraceMs).unref();
  }

  split(set: CallSet, children: readonly CommInfo[]): void {
    this.#parts.job?.addChildren(set.comm, set.number, children);
    if (this.#parts.job !== undefined) {
      this.#parts.job.countersOf(set.comm).submitted = set.number + 1;
    }
    for (const child of children) if (child.local.length > 0) this.#open(child);
  }

  capture(): undefined {
    // The library replays recorded calls one after another.
  }

  discard(): void {
    // No recording is kept.
  }

  abort(info: CommInfo, reason: unknown): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    const error = reason ?? abortedError(info);
    this.#parts.job?.aborted(info, error);
    this.#retire(comm);
    for (const run of comm.runs) run.fail(error);
  }

  release(info: CommInfo): void {
    const comm = this.#comms.get(info.id);
    if (comm === undefined) return;
    this.#parts.job?.announceClosed(info);
    this.#retire(comm);
  }

  #open(info: CommInfo): void {
    const { job, peers } = this.#parts;
    const number = commNumber(job?.keyOf(info) ?? info.name);
    const hasNumber = (comm: OpenCommunicator): boolean => comm.commNumber === number;
    const isTaken = peers.hasRetired(number) || [...this.#comms.values()].some(hasNumber);
    if (job !== undefined && isTaken) {
      const error = equalNumbersError(info);
      // The abort reaches its ranks that have no other communicator with this number.
      job.aborted(info, error);
      throw error;
    }
    this.#comms.set(info.id, { info, commNumber: number, sequence: 0, runs: new Set() });
    job?.countersOf(info);
  }

  #retire({ info, commNumber: number }: OpenCommunicator): void {
    this.#comms.delete(info.id);
    this.#parts.job?.retire(info);
    this.#parts.peers.retire(number);
  }

  /** Closes this generation of a job without its other ranks; the job goes on. */
  protected async endGeneration(): Promise<void> {
    cancelCloseOnExit(this);
    this.losses.clear();
    for (const { info } of [...this.#comms.values()]) this.abort(info, undefined);
    this.#parts.peers.destroy();
    clearInterval(this.#alive);
    this.#closing ??= Promise.resolve();
  }

  close(): Promise<void> {
    cancelCloseOnExit(this);
    this.#closing ??= this.#close();
    return this.#closing.finally(() => this.#parts.job?.leave());
  }

  async #close(): Promise<void> {
    this.losses.clear();
    for (const { info } of [...this.#comms.values()]) this.release(info);
    await this.#parts.peers.close();
    clearInterval(this.#alive);
  }

  #begin(): void {
    if (this.#running++ === 0) this.#alive.ref();
  }

  #end(): void {
    if (--this.#running === 0) this.#alive.unref();
  }
}

/** This process's rank of a job. */
export class TcpJobSession extends TcpSession implements JobSession {
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly compare: CompareDigests | undefined;
  readonly compareCaptures: CompareDigests;
  readonly #job: Job;
  readonly #connections: Peers;

  constructor(parts: SessionParts & { readonly job: Job }) {
    super(parts);
    const { job, peers } = parts;
    this.#job = job;
    this.#connections = peers;
    this.generation = job.generation;
    this.initialRanks = job.initialRanks;
    this.compare = job.compare;
    this.compareCaptures = job.compareCaptures;
    job.onRemoteEnd(() => this.losses.review());
  }

  get peers(): PeerProcesses {
    return this.#job;
  }

  onLost(listener: (rank: number, reason: string) => void): void {
    this.#job.onLost((rank, reason) => {
      this.#connections.lost(rank);
      this.losses.add(rank, () => listener(rank, reason));
    });
  }

  /** No call blocks the process. */
  barrier(): undefined {
    return undefined;
  }

  holdsWork(): boolean {
    return false;
  }

  rejoin(without: readonly number[] | undefined): Promise<Session> {
    return this.#job.rejoin(without, () => this.endGeneration());
  }
}

/** A call of this rank with its plan. */
function prepare(planner: Planner, comm: CommInfo, call: RankCall): CallData {
  const question = planQuestion(call, comm);
  const plan = planOf(planner, question);
  const { program } = plan;
  const { dtype, op } = call;
  const tables = tablesOf(plan, comm, call);
  const isCopied = overlaps(call) && readsCovered(program);
  return {
    ...{ program, dtype, tables, isCopied },
    input: isCopied ? copyOf(call.send) : memoryRange(call.send),
    output: memoryRange(call.recv),
    folds: dtype === undefined || op === undefined ? undefined : plan.folds(dtype, op),
    slices: slicesOf(program, dtype, hasUnevenBlocks(question.collective) ? undefined : call.count),
  };
}

/** The chunks of this rank's buffers. Blocks of other ranks are not needed. */
function tablesOf(plan: Plan, { ranks }: CommInfo, call: RankCall): CallData["tables"] {
  const { count, rank } = call;
  const varies = call.sendCounts !== undefined || call.recvCounts !== undefined;
  const isUneven = varies || call.collective === "gather" || call.collective === "scatter";
  const of = (blocks: ReturnType<typeof packed>) =>
    ranks.map((_, each) => (each === rank ? blocks : packed([])));
  const blocks = isUneven ? { in: of(inputBlocks(call)), out: of(outputBlocks(call)) } : undefined;
  const layout = plan.layout({ count, blocks });
  return {
    in: layout.in[rank] as CallData["tables"]["in"],
    out: layout.out[rank] as CallData["tables"]["out"],
  };
}

const coverage = new WeakMap<Program, boolean>();

/** True where a program reads an input after it has written the output that lies on it in place. */
function readsCovered(program: Program): boolean {
  return getOrCreate(coverage, program, () => execute(program, false).readsCovered);
}

function memoryRange(buffer: DeviceBuffer | undefined): RankMemory | undefined {
  if (buffer === undefined) return undefined;
  return { memory: memoryOf(buffer) as HostMemory, byteOffset: buffer.byteOffset };
}

function copyOf(buffer: DeviceBuffer | undefined): RankMemory {
  return {
    memory: new HostMemory("tcp", 0n, bytesIn(buffer).slice().buffer, false),
    byteOffset: 0,
  };
}

function bytesIn(buffer: DeviceBuffer | undefined): Uint8Array {
  if (buffer === undefined) return new Uint8Array(0);
  const { buffer: memory } = memoryOf(buffer) as HostMemory;
  return new Uint8Array(memory, buffer.byteOffset, buffer.byteLength);
}

function abortedError({ name, ranks }: CommInfo): CommAbortedError {
  return new CommAbortedError(
    { headline: `"${name}" was aborted`, hint: "open a new communicator" },
    { comm: name, size: ranks.length },
  );
}

function connectionError({ name, ranks, local }: CommInfo, lost: number, reason: string) {
  return new RankLostError(
    {
      headline: `the connection to rank ${ranks.indexOf(lost)} has ended: ${reason}`,
      hint: "comm.rebuild() continues with the survivors",
    },
    {
      rank: ranks.indexOf(local[0] as number),
      size: ranks.length,
      comm: name,
      ranks: [ranks.indexOf(lost)],
    },
  );
}

/** The connection to a rank that lives, which this process could not open. */
function outOfFilesError({ name, ranks, local }: CommInfo, peer: number, code: string) {
  const rank = ranks.indexOf(local[0] as number);
  return new BackendUnavailableError(
    {
      headline: `rank ${rank} cannot open its connection to rank ${ranks.indexOf(peer)}: ${faultOf({ code } as NodeJS.ErrnoException)}`,
      hint: `${outOfFilesHint}; then comm.rebuild() continues with all ranks`,
    },
    { rank, size: ranks.length, comm: name, ranks: [rank] },
  );
}

/** The messages of two communicators with one number would be taken for each other. */
function equalNumbersError({ name, ranks }: CommInfo): UnsupportedError {
  return new UnsupportedError(
    {
      headline: `split: "${name}" gets the number of another communicator of this process on its connections`,
      hint: "its number is a hash of the calls before the split: make another call, such as a barrier, before it",
    },
    { comm: name, size: ranks.length },
  );
}
