/**
 * The contract of a backend: everything that `api` needs of the layer that moves the data.
 *
 * A backend is a value the caller passes. It never receives a wrong call. The ledger passes a `CallSet` on only after every
 * local rank has made the call, all signatures agree and all arguments are valid. What a backend cannot do it declares through
 * `refusal`; it never falls back to something else.
 */
import type { DeviceBuffer } from "./buffer.ts";
import type { DType } from "./dtype.ts";
import type { Explanation, Question } from "./explanation.ts";
import type { Memory } from "./memory.ts";
import type { ReduceOp } from "./reduce-op.ts";
import type { CollectiveName } from "./specification.ts";

/** The `backend` of `createWorld`. */
export interface Backend {
  readonly name: string;
  /** The reason why a world of `size` ranks cannot be opened here, if there is one. Loads nothing heavy, changes nothing. */
  probe(request: OpenRequest): Probe | Promise<Probe>;
  /** Opens the ranks of one world. Throws `BackendUnavailableError` or `UnsupportedError`. */
  open(request: OpenRequest): Promise<Session>;
  /**
   * Opens this process's one rank of a job of several processes. Left out where all ranks of a world live in one process.
   * Throws `RendezvousError` when not all come, and what `open` throws: `BackendUnavailableError` on all ranks or on none, after
   * which all may join on another backend.
   */
  join?(request: JoinRequest): Promise<Session>;
}

/** The job to join. */
export interface JoinRequest {
  readonly name: string;
  /** Number of ranks that the caller expects; `undefined` when the launcher says it. */
  readonly size: number | undefined;
  /** Longest wait for the other ranks. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
}

/** The wanted world. */
export interface OpenRequest {
  readonly size: number;
  readonly name: string;
  /** For a rebuilt world: what it replaces. */
  readonly rebuilt?: Rebuilt | undefined;
}

/** The world that a rebuilt one replaces. */
export interface Rebuilt {
  /** Its session, closed by now. */
  readonly session: Session;
  /** Its ranks that stay, by rank in the new world. */
  readonly ranks: readonly number[];
}

/** The outcome of a probe. */
export interface Probe {
  readonly ok: boolean;
  /** One line: what was found, or what is missing. */
  readonly reason: string;
}

/** One backend that was tried, and what its probe said. */
export interface Attempt extends Probe {
  readonly backend: string;
}

/**
 * The ranks of one open world that live in this process.
 *
 * Ranks are those of the world where a method gets no communicator, else those of the communicator.
 */
export interface Session {
  readonly info: SessionInfo;
  /** The device of a rank that lives in this process: the same object every time. */
  device(rank: number): RankDevice;
  /** Why a call cannot be made on a communicator; `undefined` when it can. */
  refusal(question: Question, comm: CommInfo): string | undefined;
  /**
   * The plan of a call on a communicator, with the chunks of a rank's output, or of the root's where that rank has none.
   * Local, predicted, runs nothing.
   */
  explain(question: Question, comm: CommInfo, rank: number): Explanation;
  /** The estimated time of a call in nanoseconds; runs nothing. */
  estimate(question: Question, comm: CommInfo): number;
  /**
   * Runs complete, checked work. Returning means it was submitted, the promise (if any) that it is done. The work of one
   * communicator comes one after another, never two at a time. Where time is virtual, the calls of done work may be changed and
   * passed again: what is kept of them is copied.
   */
  execute(work: Work): void | Promise<void>;
  /** Makes what the communicators of a complete split need. Same promise as `execute`. */
  split(set: CallSet, children: readonly CommInfo[]): void | Promise<void>;
  /**
   * Makes a recording that is run as one call named `replay`; `undefined` where it is run call by call instead. All ranks have
   * recorded these calls. Messages are among them only where this process has one of several ranks.
   */
  capture(comm: CommInfo, recorded: readonly RecordedWork[]): object | undefined;
  /** A rank replays a recording of `capture` no more, or, with none named, none of the communicator; its replays are done. */
  discard(comm: CommInfo, rank: number, graph?: object): void;
  /** Gives up what was submitted on a communicator and is not done, if the backend can: its promises reject with this reason. */
  abort(comm: CommInfo, reason: unknown): void;
  /** A communicator is over: nothing of it is under way, and no call of it will come. */
  release(comm: CommInfo): void;
  /** The order, and the virtual time, in which ranks resume. */
  readonly scheduler: Scheduler;
  /** Present where every call of a rank is observed: injected faults, lent buffers, traces. */
  readonly observer: CallObserver | undefined;
  /** Gives everything back. Idempotent. */
  close(): void | Promise<void>;
}

/** The unchanging facts of a session. */
export interface SessionInfo {
  readonly backend: string;
  /** Number of ranks of the world. */
  readonly size: number;
  /** The ranks that live in this process, ascending. */
  readonly localRanks: readonly number[];
  readonly capabilities: Capabilities;
  /** Calls in different orders on different streams are an error, in place of a warning. */
  readonly isStrict?: boolean;
  /** Deadline of a call that gives none, in milliseconds of real time; `undefined`: none. */
  readonly timeoutMs: number | undefined;
}

/** The device of one rank: its name, its memory and its streams. */
export interface RankDevice {
  /** Such as `sim:3`. */
  readonly name: string;
  /**
   * The CUDA stream of the rank's calls on a communicator. `undefined` where there are no streams, and for a communicator with
   * streams of its own that is over.
   */
  streamOf(comm: CommInfo): bigint | undefined;
  /**
   * New memory; contents are zero. With a communicator, its stream writes the zeros: its calls wait for no others of the rank.
   * Symmetric memory only where `capabilities.symmetricMemory`.
   */
  allocate(byteLength: number, symmetric: boolean, comm?: CommInfo): Memory;
  /**
   * Device memory that the caller's own code owns, never given back from here. Throws when it is none of this device.
   * `undefined` where ranks have no device memory.
   */
  adopt(ptr: bigint, byteLength: number): Memory | undefined;
  /**
   * Host memory, for calls that use it in place or copy it. Callers' arrays only where `capabilities.hostArrays`; in a job of
   * several processes also the int64 that ranks exchange before a split, and before an all-to-allv without `recvCounts`.
   */
  borrow(memory: ArrayBufferLike): Memory;
}

/** Work that a session runs as a whole. */
export type Work = CallSet | Exchange;

/** Matched sends and receives, and those with the other end in another process: all under way at once. */
export interface Exchange {
  readonly comm: CommInfo;
  readonly transfers: readonly Transfer[];
  readonly remote: readonly RemoteTransfer[];
  /** The same object whenever the only rank here makes the same messages together again, none of them with itself. */
  readonly cache?: PlanCache;
}

/** A session that queues work: further work is submitted before earlier work is done. */
export interface QueueingSession extends Session {
  /** As `execute`; `completion` settles when the work is done. Work for which this throws was not queued. */
  submit(work: Work, completion: Completion): void;
}

/** True for a session that queues work. */
export function isQueueing(session: Session): session is QueueingSession {
  return "submit" in session;
}

/** The session of one process of a job of several. */
export interface JobSession extends Session {
  /** Generation of the job, counted from 1, and the rank that each rank had in the first one. */
  readonly generation: number;
  readonly initialRanks: readonly number[];
  /** Calls `listener` for every lost rank. */
  onLost(listener: (rank: number, reason: string) => void): void;
  /** Present where calls are compared among processes. */
  readonly compare: CompareDigests | undefined;
  /** Compares captures, which are always compared, on every communicator. */
  readonly compareCaptures: CompareDigests;
  /**
   * The barrier of ranks before work that connects them for the first time. Without it, such work blocks the process until its
   * peers submit it too. `undefined` for work that cannot block.
   */
  barrier(work: Work): PeerBarrier | undefined;
  /** True while all work of a communicator has to wait in `barrier`, also repeated calls. */
  holdsWork(comm: CommInfo): boolean;
  readonly peers: PeerProcesses;
  /** Joins the next generation of the job with the other survivors, which ends this session. May be retried after a failure. */
  rejoin(without: readonly number[] | undefined): Promise<Session>;
}

/** The session as one of a job; `undefined` where all ranks live in this process. */
export function asJobSession(session: Session): JobSession | undefined {
  return "rejoin" in session ? (session as JobSession) : undefined;
}

/**
 * Exchanges the digests of a call among all ranks of the communicator. Returns the fault that `compareDigests` finds in their
 * details, by rank, or `undefined`. Kinds that were equal before are cached: the answer for them may be `undefined` at once.
 * Rejects when a rank is lost meanwhile.
 */
export type CompareDigests = <Fault>(
  comm: CommInfo,
  number: number,
  digest: () => CallDigest,
  compareDigests: (details: readonly string[]) => Fault | undefined,
) => Promise<Fault | undefined> | undefined;

/**
 * Waits for the ranks of other processes. True: all have arrived, each may block until this process submits the call too, and
 * it can no longer be cancelled. False: it was cancelled before, while the others go on waiting. Rejects when a rank is lost.
 */
export type PeerBarrier = (cancelled: AbortSignal) => Promise<boolean>;

/** The state of communicators in the other processes of a job. Ranks are those of the world. */
export interface PeerProcesses {
  /** Ranks of a communicator that have not made call `number`. */
  missingRanks(comm: CommInfo, number: number): Promise<MissingRanks>;
  /** World ranks that messages posted together wait for; `undefined` where no rank can be asked. */
  missingEnds(
    comm: CommInfo,
    remote: readonly RemoteTransfer[],
  ): Promise<Omit<MissingRanks, "haveDiverged"> | undefined>;
  /** Sets the report of this process's open calls, for other processes; `isEcho` as for `callOrders`. */
  reportOrders(report: (isEcho: boolean) => string): void;
  /**
   * The reports of the processes that answer, by rank. An echo follows the request of another process, and makes none itself.
   */
  callOrders(isEcho: boolean): Promise<ReadonlyMap<number, string>>;
  /** This process aborted its end of a communicator; other processes get the reason on request. */
  aborted(comm: CommInfo, reason: unknown): void;
  /** The end of a communicator in another process, after which calls of this process never complete; `undefined`: none is known. */
  remoteEnd(comm: CommInfo): RemoteEnd | undefined;
  /** Calls `listener` when the end of a communicator in another process becomes known. Returns a function that removes it. */
  onRemoteEnd(listener: () => void): () => void;
}

/** The reason why calls of a process on a communicator never complete. Ranks are those of the world. */
export type RemoteEnd =
  /** Another process has ended it: the reason of its abort; `undefined` where it was closed. */
  | { readonly rank: number; readonly aborted: string | undefined }
  /** Ranks in a later generation of the job without this process; none where new processes have replaced this generation. */
  | { readonly nextGeneration: readonly number[] };

/** Ranks of a communicator that keep a call waiting. */
export interface MissingRanks {
  /** World ranks that have not made it, or do not answer. */
  readonly ranks: readonly number[];
  /** Those of them that do not answer: they may have made it. None when left out. */
  readonly silent?: readonly number[];
  /** All have made it, but one cancelled it, or connects or registers something that the others do not. */
  readonly haveDiverged: boolean;
}

/** One rank's call, as the ranks of other processes compare it. */
export interface CallDigest {
  /** Equal on ranks that make the same call. */
  readonly kind: string;
  /** All fields that are compared. */
  readonly details: () => string;
}

/** The completion of one submission: a call, or several that were appended to it. */
export interface Completion {
  /** Set by a session: this is its last submission and not done, and repeated calls can be appended to it. False at first. */
  acceptsMore: boolean;
  /** Its calls are done, or failed with this error. Called once. */
  settled(error?: unknown): void;
}

/** Properties that callers may rely on; shown as `comm.capabilities`. */
export interface Capabilities {
  /** TypedArrays are accepted directly in calls. */
  readonly hostArrays: boolean;
  /** Time is predicted on a virtual clock. */
  readonly virtualTime: boolean;
  /** The same calls give the same bits in every run. */
  readonly deterministic: boolean;
  /** `alloc` gives symmetric memory on request. */
  readonly symmetricMemory: boolean;
  /** Communicators can have streams of their own, with `split({ stream: "own" })`; left out where they cannot. */
  readonly ownStreams?: boolean;
  /** Buffers have sizes and no contents, as with `sim({ phantom: true })`; left out where they have both. */
  readonly phantom?: true;
}

/** Observes the calls of the ranks of a session. */
export interface CallObserver {
  /** A rank is about to post a call. Throwing refuses it: injected faults. */
  posting(worldRank: number, call: RankCall): void;
  /** A rank posted a call; its buffers are lent to the call until it settles. */
  posted(comm: CommInfo, call: RankCall): void;
  /** A write to a buffer of one of these calls since it was posted; checked right before they are submitted together. */
  findWrite(calls: readonly RankCall[]): WriteFault | undefined;
  /** The call has settled. */
  settled(call: RankCall): void;
  /** A posted call has failed, also by the error of a hook. */
  failed(comm: CommInfo, failed: FailedCall): void;
}

/** A buffer that its rank wrote while a call used it. */
export interface WriteFault {
  readonly rank: number;
  readonly field: "send" | "recv";
}

/** The order in which ranks resume, and their time. */
export interface Scheduler {
  /** The order in which the ranks of a finished call, or of a starting run, continue. A permutation of 0..size-1. */
  wakeOrder(set: CallSet | undefined): readonly number[];
  /** Present where ranks resume one at a time; elsewhere the ranks of a call resume together, in `wakeOrder`. */
  readonly schedule: Schedule | undefined;
  /** Present where time is virtual. */
  readonly clock: VirtualClock | undefined;
}

/** The scheduler of backends in real time: ranks resume together, in the order of their numbers. */
export function inRankOrder(size: number): Scheduler {
  const order = (length: number): number[] => Array.from({ length }, (_, rank) => rank);
  return {
    wakeOrder: (set) => order(set?.calls.length ?? size),
    schedule: undefined,
    clock: undefined,
  };
}

/** Picks the rank that resumes next. Ranks are those of the world. */
export interface Schedule {
  /** A rank becomes ready: an operation that its program awaits has settled, or its program is to start. */
  add(rank: number): void;
  /** Removes and returns the ready rank that resumes next; called only while at least one is ready. */
  next(): number;
}

/** Virtual time of each rank, in integer picoseconds. */
export interface VirtualClock {
  /** The time on a rank's clock. */
  now(rank: number): number;
  /** The rank learns of something that happened at `timePs`: its clock moves up to it, never back. */
  reach(rank: number, timePs: number): void;
  /** The rank computes for a while. */
  work(rank: number, durationNs: number, label: string | undefined): void;
  /** Ranks make a split or a capture: they are done when the last one has made it. */
  join(set: CallSet): void;
}

/** A communicator as backends see it. */
export interface CommInfo {
  /** Number within its world, counted from 0; 0 holds all ranks. */
  readonly id: number;
  readonly name: string;
  /** World ranks of its members, by rank in this communicator. */
  readonly ranks: readonly number[];
  /** Its ranks that live in this process, ascending. */
  readonly local: readonly number[];
  /** Present where its ranks have streams of their own for it: its calls have no order with those of other communicators. */
  readonly ownStream?: true;
}

/** A rank's choice in a split. */
export interface SplitChoice {
  /** `undefined` joins nothing. */
  readonly color: number | undefined;
  readonly key: number;
  readonly ownStream: boolean;
}

/** One rank's validated call. */
export interface RankCall {
  readonly rank: number;
  readonly collective: CollectiveName;
  readonly dtype: DType | undefined;
  readonly op: ReduceOp | undefined;
  /** Elements of the call as NCCL counts them; for an all-to-allv the elements sent. */
  readonly count: number;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly send: DeviceBuffer | undefined;
  recv: DeviceBuffer | undefined;
  /** Lengths and places of the blocks of a v-form; `undefined` for every other collective. */
  readonly sendCounts: readonly number[] | undefined;
  readonly sendOffsets: readonly number[] | undefined;
  /** For an all-to-allv also `undefined` until they were exchanged. */
  recvCounts: readonly number[] | undefined;
  recvOffsets: readonly number[] | undefined;
  readonly split: SplitChoice | undefined;
  /** For a capture and its replays: what was recorded. */
  readonly recorded: RecordedCalls | undefined;
  /** For a capture: the backend's object for the recording. For a replay: the recording to run. */
  graph: object | undefined;
  /** Virtual time of the call, 0 without a virtual clock. */
  readonly postedAtPs: number;
  /** Virtual time at which this rank's part is done; set by the backend that has a clock. */
  finishedAtPs: number;
}

/** A rank's call that was posted and failed. */
export interface FailedCall {
  readonly call: RankCall;
  /** Its number on the communicator. */
  readonly number: number;
  readonly error: unknown;
  /** Virtual time at which the rank got the error; 0 without a virtual clock. */
  readonly atPs: number;
}

/** The calls that a rank has recorded. */
export interface RecordedCalls {
  /** The collective ones, each with the virtual time by which it is posted later than a replay. */
  readonly calls: readonly RankCall[];
  readonly messages: readonly RecordedMessages[];
  /** Their memory: one buffer of each allocation. */
  readonly buffers: readonly DeviceBuffer[];
  readonly sendBytes: number;
}

/** Sends and receives that a rank has recorded together. */
export interface RecordedMessages {
  /** Number of collective calls that it recorded before them. */
  readonly place: number;
  readonly ends: readonly Omit<RemoteTransfer, "number">[];
}

/** A recorded call of all ranks, or messages of the only rank here. */
export type RecordedWork = CallSet | RecordedMessages;

/** A send and the matching receive, equal in dtype and count. */
export interface Transfer {
  readonly send: RankCall;
  readonly recv: RankCall;
  /** Numbers of the two calls, each among the messages of its rank. */
  readonly sendNumber: number;
  readonly recvNumber: number;
  /** All that the sender posted together with this, and the receiver; one object for all messages of it. */
  readonly sendBatch: PostedMessages;
  readonly recvBatch: PostedMessages;
}

/** The sends and receives that a rank posted together, in one call or group: all of them may be under way at once. */
export interface PostedMessages {
  /** True where one of them is a send to that rank, or a receive from it. */
  hasPeer(direction: "send" | "recv", rank: number): boolean;
  /** Number of ranks that they are sends to, or receives from. */
  peerCount(direction: "send" | "recv"): number;
}

/** A send or a receive with its other end in another process. */
export interface RemoteTransfer {
  readonly direction: "send" | "recv";
  /** The rank of the communicator at the other end. */
  readonly peer: number;
  /** Number of earlier messages from its sender to the same receiver, on this communicator. */
  readonly number: number;
  readonly call: RankCall;
}

/** One call of all ranks: complete, compared, valid. */
export interface CallSet {
  readonly comm: CommInfo;
  /** Number of the call on its communicator, counted from 0. */
  readonly number: number;
  readonly collective: CollectiveName;
  /** Those of the ranks that live in this process, by rank. */
  readonly calls: readonly RankCall[];
  /** The same object whenever the same calls are repeated; left out for calls that the library itself makes. */
  readonly cache?: PlanCache;
}

/** Identifies the arguments of all ranks' calls: the same object as long as they are the same, buffers included. */
export interface PlanCache {
  /** The backend's work that depends on the arguments alone, for the next call. */
  planned: object | undefined;
  /** Set by a session that queues work: submits the call again, in place of `submit`. */
  repeat: RepeatedCall | undefined;
}

/** A planned call that is submitted again without any check. */
export interface RepeatedCall {
  /** Submits it as call `number` of its rank; appended to the submission of a completion that accepts more. */
  submit(number: number, completion: Completion): void;
}
