/**
 * The contract of a backend: everything that `api` needs of the layer that moves the data.
 *
 * A backend is a value the caller passes. It never sees a wrong call: the ledger hands over a `CallSet` only when
 * every local rank has made the call, all signatures agree and all arguments were validated. What a backend cannot do
 * it declares through `supports`; it never falls back to something else.
 */
import type { DeviceBuffer } from "./buffer.ts";
import type { CollectiveName } from "./collectives/spec.ts";
import type { DType } from "./dtype.ts";
import type { Explanation, Question } from "./explanation.ts";
import type { Memory } from "./memory.ts";
import type { ReduceOp } from "./reduce-op.ts";

/** The `backend` of `createWorld`. */
export interface Backend {
  readonly name: string;
  /** The reason why a world of `size` ranks cannot be opened here, if there is one. Loads nothing heavy, changes nothing. */
  probe(request: OpenRequest): Probe | Promise<Probe>;
  /** Opens the ranks of one world. Throws `BackendUnavailableError` or `UnsupportedError`. */
  open(request: OpenRequest): Promise<Session>;
  /**
   * Opens this process's one rank of a job of several processes. Left out where all ranks of a world live in one process.
   * Throws `RendezvousError` when not all come, and what `open` throws.
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

/** The ranks of one open world that live in this process. */
export interface Session {
  readonly backend: string;
  readonly size: number;
  /** The ranks that live in this process, ascending; all of them when left out. */
  readonly localRanks?: readonly number[];
  readonly capabilities: Capabilities;
  /** Deadline of a call that gives none, in milliseconds of real time; none when left out. */
  readonly timeoutMs?: number | undefined;
  /** In a job of several processes: which life of the job this is, from 1, and the first life's rank of every rank. */
  readonly generation?: number;
  readonly origins?: readonly number[];
  /** The backends that were tried to get this one, where there was a choice. */
  readonly selection?: readonly Attempt[];
  /** Name of a rank's device, such as `sim:3`. */
  device(rank: number): string;
  /** The CUDA stream that a rank's operations run on. Left out where there are no streams. */
  stream?(rank: number): bigint;
  /** New memory on a rank's device; contents are zero. Symmetric memory only where `capabilities.symmetricMemory`. */
  allocate(rank: number, byteLength: number, symmetric?: boolean): Memory;
  /**
   * Device memory that the caller's own code owns, never given back from here. Throws when it is none of the rank's
   * device. Left out where ranks have no device memory.
   */
  adopt?(rank: number, ptr: bigint, byteLength: number): Memory;
  /** Host memory used in place, where the backend can (`capabilities.hostArrays`). */
  borrow(rank: number, memory: ArrayBufferLike): Memory;
  /** Why a call cannot be made on a communicator; `undefined` when it can. */
  refusal(question: Question, comm: CommInfo): string | undefined;
  /**
   * The plan of a call on a communicator, with the chunks of a rank's output, or of the root's where that rank has none.
   * Local, predicted, runs nothing.
   */
  explain(question: Question, comm: CommInfo, rank: number): Explanation;
  /** The backend's own estimate of a call's time in nanoseconds; runs nothing. Left out where it has none. */
  estimate?(question: Question, comm: CommInfo): number;
  /** Gets every call of a rank as it is posted. Throwing refuses it: injected faults. */
  posted?(worldRank: number, call: RankCall): void;
  /** Gets every posted call that has failed, or that a hook made fail. Left out where failures are not recorded. */
  failed?(comm: CommInfo, failed: FailedCall): void;
  /** Present where the memory that calls were lent is watched. */
  readonly lending?: Lending | undefined;
  /**
   * Runs one complete, checked call. Returning means it was submitted, the promise (if any) that it is done. Sets of
   * one communicator come one after another, never two at a time.
   */
  execute(set: CallSet): void | Promise<void>;
  /**
   * Makes a recording that `execute` or `enqueue` runs as one call named `replay`; `undefined` where it is run call by
   * call instead. All ranks have recorded these calls, none of which is a message.
   */
  capture?(comm: CommInfo, recorded: readonly CallSet[]): object | undefined;
  /** A rank replays a recording of `capture` no more, or, with none named, none of the communicator; its replays are done. */
  discard?(comm: CommInfo, rank: number, graph?: object): void;
  /**
   * Gets a complete call that was about communicators or recordings instead of data (split, capture). Where time
   * is virtual, its ranks are done when the last one has come.
   */
  organised?(set: CallSet): void;
  /** Runs sends and the receives they meet, and halves with their other end elsewhere, all at once. Same promise as `execute`. */
  exchange(
    comm: CommInfo,
    transfers: readonly Transfer[],
    halves: readonly HalfTransfer[],
  ): void | Promise<void>;
  /**
   * Present where calls are queued: as `execute`, but further ones may be handed over while earlier ones are at work, and
   * `waiting` settles when it is done. A call that throws was not queued.
   */
  enqueue?(set: CallSet, waiting: Waiting): void;
  /** Present with `enqueue`: queues the call of a set again, by its `kept` with `work`, as the set's call `number`. */
  enqueueAgain?(kept: Kept, number: number, waiting: Waiting): void;
  /** Present with `enqueueAgain`: does the same for a `Waiting` that `takesMore`, which settles once for all. */
  enqueueBehind?(kept: Kept, number: number): void;
  /** Present with `enqueue`: the same for `exchange`. */
  enqueueExchange?(
    comm: CommInfo,
    transfers: readonly Transfer[],
    halves: readonly HalfTransfer[],
    waiting: Waiting,
  ): void;
  /** Makes what the communicators of a complete split need. Same promise as `execute`. */
  split?(set: CallSet, children: readonly CommInfo[]): void | Promise<void>;
  /** Calls `listener` for every lost rank. */
  onLost?(listener: (rank: number, reason: string) => void): void;
  /**
   * Present in a job of several processes that compares calls: gives `judge` the words of all ranks of the communicator
   * about a call, by rank, and returns its verdict, which is `undefined` when they agree. That is remembered: a call of a kind
   * that ranks have agreed on may be let through, for which the answer is `undefined` at once. Kinds are equal on all ranks
   * that make the same calls. Rejects when a rank is lost meanwhile.
   */
  compare?:
    | (<Fault>(
        comm: CommInfo,
        number: number,
        own: () => OwnWords,
        judge: (words: readonly string[]) => Fault | undefined,
      ) => Promise<Fault | undefined> | undefined)
    | undefined;
  /**
   * Present in a job of several processes, where a call that connects ranks for the first time blocks this process until
   * they make it too: what brings together those that a call connects, before it is handed over. `undefined` where it
   * blocks no process.
   */
  convene?: ((set: CallSet) => Convening | undefined) | undefined;
  /** Present with `convene`: the same for messages. */
  conveneExchange?:
    | ((comm: CommInfo, halves: readonly HalfTransfer[]) => Convening | undefined)
    | undefined;
  /** Present in a job of several processes. */
  readonly others?: OtherProcesses | undefined;
  /** Joins the next life of the job with the other survivors; this session is over then. Where that fails it may be tried again. */
  rejoin?(without: readonly number[] | undefined): Promise<Session>;
  /** Gives up what was submitted on a communicator and is not done: its promises reject with this reason. */
  abort?(comm: CommInfo, reason: unknown): void;
  /** A communicator is over: nothing of it is under way, and no call of it will come. */
  forget?(comm: CommInfo): void;
  /** The order in which the ranks of a finished call, or of a starting run, continue. A permutation of 0..size-1. */
  wakeOrder(set: CallSet | undefined): readonly number[];
  /** Present where ranks resume one at a time; elsewhere the ranks of a call resume together, in `wakeOrder`. */
  readonly schedule?: Schedule;
  /** Present where time is virtual. */
  readonly clock?: VirtualClock;
  /** Gives everything back. Idempotent. */
  close(): void | Promise<void>;
}

/**
 * Brings ranks of several processes together. True: all have come, and each may be blocked until the others are handed the
 * call too, which cannot be taken back any more. False: it was given up before, and the others go on waiting. Rejects when
 * one of them is lost.
 */
export type Convening = (givenUp: AbortSignal) => Promise<boolean>;

/** The other processes of a job, as far as they say what becomes of its communicators. Ranks are those of the world. */
export interface OtherProcesses {
  /** Ranks of a communicator that have not made call `number`. */
  missing(comm: CommInfo, number: number): Promise<MissingRanks>;
  /** The same for messages that were made together: the ranks with the missing ends. `undefined`: no answer. */
  missingEnds(
    comm: CommInfo,
    halves: readonly HalfTransfer[],
  ): Promise<readonly number[] | undefined>;
  /** This process's end of a communicator was aborted; other processes get the reason on request. */
  gaveUp(comm: CommInfo, why: unknown): void;
  /** The end of a communicator elsewhere, after which calls of this process there never end; `undefined`: none is known. */
  whoEnded(comm: CommInfo): Promise<EndedElsewhere | undefined>;
}

/** The reason why calls of a process on a communicator never end. Ranks are those of the world. */
export type EndedElsewhere =
  /** Another process has ended it: the reason of its abort; `undefined` where it was closed. */
  | { readonly rank: number; readonly aborted: string | undefined }
  /** Others are in a later life of the job, without this process; none of this life where fresh processes have taken its place. */
  | { readonly wentOn: readonly number[] };

/** Ranks of a communicator that keep a call waiting. */
export interface MissingRanks {
  /** World ranks that have not made it, or do not say. */
  readonly ranks: readonly number[];
  /** All have made it, but do not come together for it: one gave it up before, or connects or registers what others do not. */
  readonly areApart: boolean;
}

/** One rank's words to the others about its call. */
export interface OwnWords {
  /** Equal on ranks that make the same call. */
  readonly kind: string;
  /** All that the others need to know. */
  readonly words: string;
}

/** Waits for queued calls. */
export interface Waiting {
  /** Set by a session that has `enqueueBehind`: nothing was queued after this, and it is not done. False at first. */
  takesMore: boolean;
  /** They are done, or failed with this error. Called once. */
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
  /** Buffers have sizes and no contents, as with `sim({ phantom: true })`; left out where they have both. */
  readonly phantom?: true;
}

/** Watches the memory that calls were lent, from the moment they are posted until they are served. */
export interface Lending {
  /** A rank posted a call. */
  lend(comm: CommInfo, call: RankCall): void;
  /** The rank that wrote memory lent to one of these calls; checked right before they are served together. */
  writer(calls: readonly RankCall[]): LendingFault | undefined;
  /** The call has settled. */
  settled(call: RankCall): void;
}

/** A rank that wrote a buffer while it was lent. */
export interface LendingFault {
  readonly rank: number;
  readonly field: "send" | "recv";
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
  /** For a split: color (`undefined` joins nothing) and key. */
  readonly split: { readonly color: number | undefined; readonly key: number } | undefined;
  /** For a capture and its replays: what was recorded; left out when messages are among it. */
  readonly recorded: RecordedCalls | undefined;
  /** For a capture: what the backend made of the recording. For a replay: which recording is run. */
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

/** The collective calls that a rank has recorded. */
export interface RecordedCalls {
  /** Each with the virtual time by which it is posted later than a replay. */
  readonly calls: readonly RankCall[];
  /** Their memory: one buffer of each allocation. */
  readonly buffers: readonly DeviceBuffer[];
  readonly sendBytes: number;
}

/** A send and the receive it meets, equal in dtype and count. */
export interface Transfer {
  readonly send: RankCall;
  readonly recv: RankCall;
  /** Numbers of the two calls, each among the messages of its rank. */
  readonly sendNumber: number;
  readonly recvNumber: number;
  /** Stands for what the sender posted together with this, in one call or group: all of it may be under way at once. */
  readonly sendBatch: object;
  /** The same for the receiver. */
  readonly recvBatch: object;
}

/** A send or a receive with its other end in another process. */
export interface HalfTransfer {
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
  /** Comes again whenever the same calls are made again; left out for calls that no rank made itself. */
  readonly kept?: Kept;
}

/** Stands for the arguments of all ranks' calls: the same object as long as they are the same, buffers included. */
export interface Kept {
  /** The backend's work that depends on the arguments alone, for the next time. */
  work: object | undefined;
}
