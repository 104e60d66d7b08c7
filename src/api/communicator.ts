/**
 * The Communicator: one rank's end of a group, and the one interface a user must read.
 *
 * Rules of every call: all arguments are checked first. All ranks make the same calls on a communicator in the same order.
 * Counts are elements. A buffer is lent from the call until it settles. **Awaiting a call means its result is readable**. Calls
 * of one communicator run in call order.
 */
import type { Capabilities } from "./backend.ts";
import type { DeviceBuffer } from "./buffer.ts";
import type {
  AllGatherArgs,
  AllGathervArgs,
  AllReduceArgs,
  AllToAllArgs,
  AllToAllvArgs,
  AllToAllvResult,
  BroadcastArgs,
  CallOptions,
  Data,
  DTypeOf,
  GatherArgs,
  Received,
  RecvArgs,
  ReduceArgs,
  ReduceScatterArgs,
  ReduceScattervArgs,
  ScatterArgs,
  SendArgs,
  SendRecvArgs,
  SplitArgs,
} from "./calls.ts";
import type { DType } from "./dtype.ts";
import type { Explanation, Question } from "./explanation.ts";
import type { Hooks } from "./hooks.ts";
import type { CommOp } from "./op.ts";

/** The work of a rank so far on one communicator. */
export interface CommStats {
  /**
   * Calls made, by collective: a `sendRecv` is one call, a `group` as many as it holds. Calls that a hook, an abort or an
   * unobserved failure refuses count, as those that run hooks; calls refused for another reason do not.
   */
  readonly calls: Readonly<Record<string, number>>;
  /** Bytes of the send buffers of these calls. */
  readonly sendBytes: number;
  /** Calls that failed. */
  readonly failures: number;
  /** Time on this rank's virtual clock in nanoseconds, predicted; left out where time is real. */
  readonly virtualNs?: number;
}

/** Options of `alloc`. */
export interface AllocOptions {
  /**
   * Symmetric memory, which ranks reach into directly. An `allReduce`, `reduceScatter` or `allGather` with both buffers in it
   * runs other kernels, which are faster for small sizes. Float sums differ in their last bits, because they are folded in
   * another order and rounded once. Every other call treats it as any other memory.
   *
   * The first such call that uses an allocation of every rank forms a window of them. Ranks must use equally long allocations
   * in the same order, and start at the same offset in them (`CollectiveMismatchError`). Sums of 1- and 2-byte floats from
   * addresses that are no multiple of 4 are refused where NCCL computes them wrongly, and so are blocks that it misplaces.
   *
   * @throws UnsupportedError where the backend has none (`capabilities.symmetricMemory`).
   */
  readonly symmetric?: boolean | undefined;
}

/** A recorded sequence of calls; see `capture`. */
export interface Graph extends Disposable {
  /**
   * Runs the recorded calls again on the buffers' present contents; ordered like any call.
   *
   * It is one call named `replay`, for hooks, counters and faults too, and meets replays of the same recording alone.
   * `tcp()` and backends without recordings make the calls one by one, as if the program made them. So do all where messages
   * were recorded, except on GPUs with a process for each rank. Costs a microsecond a recorded call of 8 small ranks on the simulation, and one graph launch a rank on GPUs.
   *
   * @throws CommClosedError once the recording, or a buffer of it, was disposed.
   * @throws CollectiveMismatchError where other ranks replay another recording, or make another call.
   */
  replay(options?: CallOptions): CommOp<void>;

  /** True once `dispose` was called, or the communicator closed on this rank, or the world with it. */
  readonly disposed: boolean;

  /**
   * Gives back what the recording holds on this rank, on GPUs too, once the replays made before are done. Later ones are
   * refused. Concerns this rank alone, takes no part of the others, and is idempotent.
   */
  dispose(): void;
}

/** A call with fixed arguments; see `prepare`. */
export interface PersistentCall<T = unknown> {
  /**
   * Makes the call with what its buffers hold now, numbered and ordered like any call; in a `group` or `capture` as part of it.
   *
   * @throws CommClosedError once a buffer of it was disposed, or its communicator was closed.
   */
  start(options?: CallOptions): CommOp<T>;
}

/** One rank's end of a group of ranks. */
export interface Communicator extends AsyncDisposable {
  /** This rank, from 0. */
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** The ranks that live in this process, ascending: all of them, or this one alone in a job of several processes. */
  readonly localRanks: readonly number[];
  /**
   * Name of the world or the job. A communicator from `split` has its parent's name, its color and, from the parent's second
   * split on, the number of the split: `world/0`, `world/0#2`. Alike on all its ranks, and no other one's of the same world.
   */
  readonly name: string;
  /** Name of the backend, such as `sim`. */
  readonly backend: string;
  /** Name of this rank's device, such as `sim:3`. */
  readonly device: string;
  /**
   * The CUDA stream that everything of this rank runs on: calls, in call order, copies and fills. `undefined` on the simulation.
   * A communicator of `split({ stream: "own" })` has another one, of its calls alone; `undefined` once it is over.
   *
   * Work that other code has queued there before a call is done before it. A call is queued there once all ranks of
   * this process have made it: work that is queued there after `await op.enqueued` sees its result.
   */
  readonly stream: bigint | undefined;
  readonly capabilities: Capabilities;
  /** Callbacks around this rank's operations on this communicator. */
  readonly hooks: Hooks;

  /**
   * Allocates a buffer on this rank's device, filled with zeros. Host memory on the simulation.
   * With `symmetric`, calls may take other kernels; see `AllocOptions`.
   *
   * @throws InvalidArgumentError for a dtype that does not exist or a length that is no count of elements.
   */
  alloc<D extends DType>(dtype: D, length: number, options?: AllocOptions): DeviceBuffer<D>;

  /**
   * A buffer over device memory that other CUDA code of this process owns: `length` elements from address `ptr` on. Takes
   * part in calls and copies like any buffer; contents stay as they are, and `dispose` gives nothing back.
   *
   * The owner keeps the memory until the buffer is disposed and its calls are done. CUDA checks that the first and
   * the last byte are memory of this rank's device; the memory between them cannot be checked. Work of the owner on the
   * same memory is ordered with calls by `stream`.
   *
   * @throws InvalidArgumentError for an address outside of this rank's device memory, or not a multiple of the element size.
   * Also for symmetric memory of this rank: use a `subarray` of its buffer instead.
   * @throws UnsupportedError on a backend without device memory, where calls take TypedArrays in place.
   * @example
   * const gradients = comm.adopt(tensor.address, "bfloat16", tensor.length);
   * await comm.allReduce({ send: gradients, op: "avg" });
   */
  adopt<D extends DType>(ptr: bigint, dtype: D, length: number): DeviceBuffer<D>;

  /**
   * Folds the inputs of all ranks element by element and gives every rank the result.
   *
   * - **Lengths**: `recv.length = send.length`, the same on all ranks, and so are `dtype` and `op`.
   * - **In place**: leave `recv` out, or pass the same range.
   * - **Resolves** to the receiving data, readable on this rank.
   * - **Floating point**: one rounding to the dtype at every hop, in the order of the plan (`explain` shows it). All ranks hold
   *   the same bits, in every run. Averages multiply each contribution first.
   * - **Cost** of the ring: 2(n−1) steps, 2(n−1)/n of the buffer sent per rank.
   *
   * @throws InvalidArgumentError on this rank, before anything is posted, for a wrong argument.
   * @throws CollectiveMismatchError on all ranks when they disagree; nothing is written.
   * @throws DeadlockError when some rank never makes the call. RemoteRankError when a rank threw.
   * @see {@link https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html#ncclallreduce}
   * @example
   * await comm.allReduce({ send: gradients, op: "avg" });
   */
  allReduce<S extends Data, R extends Data | undefined = S>(
    args: AllReduceArgs<S, R>,
  ): CommOp<NoInfer<Received<R, S>>>;

  /** Folds the inputs of all ranks and gives the result to `root`; lengths and order as `allReduce`. */
  reduce<S extends Data, R extends Data | undefined = S>(
    args: ReduceArgs<S, R>,
  ): CommOp<NoInfer<Received<R, S> | undefined>>;

  /**
   * Gives every rank a copy of the root's data, bit for bit, NaN payloads included.
   *
   * - **Lengths**: the root's `send` and every `recv` are equally long; `dtype` and `root` are the same everywhere.
   * - **In place**: the root passes one of `send` and `recv`, or the same range as both.
   * - **Resolves** to the receiving data (the root's own where it has no `recv`).
   * - **Cost** of the binomial tree: ⌈log₂ n⌉ steps, at most ⌈log₂ n⌉ times the buffer sent by the root.
   *
   * @throws InvalidArgumentError for a missing buffer or a root that is no rank.
   * @throws CollectiveMismatchError on all ranks when they disagree; nothing is written.
   * @see {@link https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html#ncclbroadcast}
   * @example
   * await comm.broadcast({ recv: weights, root: 0 });
   */
  broadcast<S extends Data, R extends Data | undefined = S>(
    args: BroadcastArgs<S, R>,
  ): CommOp<NoInfer<Received<R, S>>>;

  /** Concatenates the inputs of all ranks on every rank: `recv.length = size · send.length`. */
  allGather<S extends Data, R extends Data = S>(args: AllGatherArgs<S, R>): CommOp<R>;

  /**
   * An all-gather of different lengths; the counts are the same array on all ranks.
   *
   * - **Lengths**: `send.length = recvCounts[rank]`. Without `recvOffsets` the blocks follow one another, and `recv.length` is
   *   exactly the sum of the counts. With offsets the blocks lie anywhere inside `recv` without overlap, and elements between
   *   them are not written.
   */
  allGatherv<S extends Data, R extends Data = S>(args: AllGathervArgs<S, R>): CommOp<R>;

  /** Folds `size` blocks and gives block r to rank r: `send.length = size · recv.length`. */
  reduceScatter<S extends Data, R extends Data = S>(args: ReduceScatterArgs<S, R>): CommOp<R>;

  /** A reduce-scatter of blocks of different lengths; the counts are the same array on all ranks. */
  reduceScatterv<S extends Data, R extends Data = S>(args: ReduceScattervArgs<S, R>): CommOp<R>;

  /**
   * Sends block j of `send` to rank j and receives its block in `recv`: the transpose of blocks.
   *
   * - **Lengths**: `send.length = recv.length = size · count`, the same count everywhere. No in-place form.
   * - **Resolves** to `recv`. Bytes are copied, NaN payloads included.
   * - **Cost** of the pairwise exchange: n−1 steps, (n−1)/n of the buffer sent per rank.
   *
   * @throws InvalidArgumentError for lengths that are no multiple of `size`, or buffers that overlap.
   * @throws CollectiveMismatchError on all ranks when they disagree; nothing is written.
   * @see {@link https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html#ncclalltoall}
   */
  allToAll<S extends Data, R extends Data = S>(args: AllToAllArgs<S, R>): CommOp<R>;

  /**
   * Sends `sendCounts[j]` elements, from `sendOffsets[j]` on, to every rank j, and receives theirs.
   *
   * - **Counts** are elements. Without `recvCounts` they are exchanged first, in a phase of their own; with them, they
   *   must be the transpose of what the others send. Offsets left out are running sums.
   * - **Lengths**: `send` covers every block; `recv` is left out (then it is allocated) or long enough. Blocks of
   *   `recv` must not overlap. No in-place form.
   * - **Resolves** to `{ recv, recvCounts, recvOffsets }`. Bytes are copied, NaN payloads included.
   * - **Cost** of the pairwise exchange: n−1 steps; each rank sends what it has for others once.
   *
   * @throws InvalidArgumentError for counts that are no counts, blocks outside a buffer, or overlapping ones.
   * @throws CollectiveMismatchError on all ranks when counts are not transposes or a `recv` is too short.
   * @example
   * const { recv, recvCounts } = await comm.allToAllv({ send: tokens, sendCounts: [3, 0, 5, 1] });
   */
  allToAllv<S extends Data, R extends Data | undefined = undefined>(
    args: AllToAllvArgs<S, R>,
  ): CommOp<AllToAllvResult<NoInfer<Received<R, DeviceBuffer<DTypeOf<S>>>>>>;

  /**
   * Concatenates the inputs of all ranks at `root`, which alone gives `recv`, `recvCounts` and `recvOffsets`.
   *
   * - **Lengths**: rank r sends `recvCounts[r]` elements; without counts, all ranks send as many as the root. Without
   *   `recvOffsets` the blocks follow one another, and the root's `recv` is exactly as long as all of them. With offsets the
   *   blocks lie anywhere inside `recv` without overlap, and elements between them are not written.
   * - **In place**: the root's `send` is its own block of `recv`.
   * - **Resolves** to the root's `recv`, and to `undefined` elsewhere. Bytes are copied, NaN payloads included.
   *
   * @throws InvalidArgumentError for a `recv` of another length, a block outside of it, or blocks that overlap.
   * @throws CollectiveMismatchError on all ranks when a rank sends another length than the root has for it.
   */
  gather<S extends Data, R extends Data | undefined = S>(
    args: GatherArgs<S, R>,
  ): CommOp<NoInfer<R | undefined>>;

  /**
   * Gives every rank its block of the root's data; the root alone gives `send`, `sendCounts` and `sendOffsets`.
   *
   * - **Lengths**: rank r receives `sendCounts[r]` elements; without counts, all ranks receive as many as the root. Without
   *   `sendOffsets` the blocks follow one another, and the root's `send` is exactly as long as all of them. With offsets the
   *   blocks lie anywhere inside `send`, and may overlap.
   * - **In place**: the root's `recv` is its own block of `send`.
   * - **Resolves** to `recv`. Bytes are copied, NaN payloads included.
   *
   * @throws InvalidArgumentError for a `send` of another length, or a block outside of it.
   * @throws CollectiveMismatchError on all ranks when a rank receives another length than the root has for it.
   */
  scatter<S extends Data, R extends Data = S>(args: ScatterArgs<S, R>): CommOp<R>;

  /** Sends to one rank; settles when the data has left. Meets the peer's `recv`, in order. */
  send<S extends Data>(args: SendArgs<S>): CommOp<void>;

  /** Receives from one rank. Meets the peer's `send`, in order. */
  recv<R extends Data>(args: RecvArgs<R>): CommOp<R>;

  /** Sends to one rank while receiving from another; never deadlocks with itself. */
  sendRecv<S extends Data, R extends Data = S>(args: SendRecvArgs<S, R>): CommOp<R>;

  /**
   * Holds every rank until all have come. Cost of the dissemination barrier: ⌈log₂ n⌉ steps without data.
   *
   * @throws DeadlockError when some rank never comes.
   */
  barrier(args?: CallOptions): CommOp<void>;

  /**
   * Runs calls as one, posted when the synchronous callback has returned: collective calls in order, then all sends and
   * receives, which meet freely. A group inside a group belongs to the outer one; what is wrong with it is thrown there,
   * calls on other communicators among it.
   */
  group(calls: () => void): CommOp<void>;

  /**
   * Divides the ranks into communicators by color; ranks with the explicit color `undefined` get none. A communicator stays
   * usable after its parent has ended. It takes memory until all its ranks have closed it, or one has aborted it.
   *
   * Calls of a rank take effect in the order in which it makes them, on all its communicators: ranks must make them in one
   * order. With `stream: "own"` the communicator has a stream of its own on every rank, and no order with other communicators.
   *
   * - **Resolves** to the communicator of this rank's color, and to `undefined` where the color is `undefined`.
   *
   * @throws UnsupportedError for a stream of its own without `capabilities.ownStreams`.
   * @throws CollectiveMismatchError where only some ranks ask for one.
   */
  split(args: SplitArgs & { readonly color: number }): CommOp<Communicator>;
  /** The same for a color that may be `undefined`; such a rank gets `undefined`. */
  split(args: SplitArgs): CommOp<Communicator | undefined>;

  /**
   * Records the calls of a synchronous callback, for `replay`: there they run in the order recorded, a `group` as one, with
   * virtual work between them. Recording runs no call and takes only the time of waiting for all ranks. A mismatch of the
   * ranks' calls is an error of the recording, not of a replay. A call on another communicator is an error too, thrown in the
   * callback. Recorded calls take no `timeoutMs` and no `signal`: `replay` does; an `allToAllv` needs `recvCounts` and `recv`.
   *
   * All ranks record the same collective calls in the same order. Messages may differ in number and position from rank to rank,
   * as in the stages of a pipeline, and a rank may have none. Both ends of each are recorded, with one dtype and count
   * (`CollectiveMismatchError`). On GPUs with a process for each rank they are part of the CUDA graph: all ranks replay it
   * together.
   *
   * `dispose`, or closing the communicator, frees its memory. On GPUs, other calls on the communicator take about 2 µs longer
   * until then.
   */
  capture(calls: () => void): CommOp<Graph>;

  /**
   * Prepares a call: checks its arguments now, and makes it at every `start`, as MPI's persistent requests. Concerns this rank
   * alone: other ranks make the same call in any form. The callback makes one call and returns it; it takes no `timeoutMs` and
   * no `signal`, which `start` does. A `split`, `capture`, `group` or `replay` cannot be prepared.
   *
   * A call that repeats the arguments of the call before with the same buffer is found by that buffer and costs the same. A
   * prepared call needs no buffer of its own, and several calls may share one.
   *
   * @throws InvalidArgumentError for a wrong argument of the call, or a callback that does not return its one call.
   * @example
   * const reduce = comm.prepare(() => comm.allReduce({ send: gradients, op: "avg" }));
   * for (let step = 0; step < 1000; step++) await reduce.start();
   */
  prepare<T>(call: () => CommOp<T>): PersistentCall<T>;

  /**
   * The plan of a call: algorithm, chunks, fold order, steps, bytes, time. Predicted; runs nothing. Chunks are those of this
   * rank's output; of a reduce or gather those of the root's, on every rank.
   *
   * @throws InvalidArgumentError for a call that makes no sense here. UnsupportedError for one without a known plan.
   */
  explain(question: Question): Explanation;

  /** True when this backend can make such a call; false also where no backend can, as with a root that is no rank. */
  supports(question: Question): boolean;

  /** The work of this rank so far. */
  stats(): CommStats;

  /**
   * Virtual compute on the simulation's clock, recorded inside of `capture`; nothing on real devices. A label names it in the
   * trace.
   *
   * @throws InvalidArgumentError for a duration that is no number from 0 to 1e15, 11 days, or a label that is no string.
   */
  work(durationNs: number, label?: string): void;

  /**
   * Waits for this rank's calls and refuses later ones. Rethrows an unobserved failure. Closed again, it waits for the
   * same end and rethrows nothing. Inside of a `group`, `capture` or `prepare` of its own it is refused, as wrong calls are there.
   */
  close(): Promise<void>;

  /**
   * Ends the communicator at once and permanently, on every rank of this process. Open and later calls fail with a
   * `CommAbortedError` with the reason as cause, and the `onAbort` hooks of every rank run once. Aborting the communicator of
   * all ranks ends the world. Aborting one from `split` ends that one alone: the communicator it was split from, its siblings
   * and what was split from it go on. Ranks of other processes that wait in one of its calls fail within about two seconds, as
   * if they had aborted it themselves.
   */
  abort(reason?: unknown): void;
}
