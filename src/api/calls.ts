/**
 * The arguments of every call, in the names that all collectives share.
 *
 * One object with named fields, because NCCL orders (send, recv) and torch (output, input). Counts and offsets are
 * **elements**, never bytes. Lengths are exact: a buffer of another length is refused, not cut or padded. Only blocks with
 * offsets, and those of an all-to-allv, may lie in a longer one.
 */
import type { DeviceBuffer } from "./buffer.ts";
import type { DType } from "./dtype.ts";
import type { NamedArrays, TypedHost } from "./host-array.ts";
import type { ReduceOp } from "./reduce-op.ts";

/** Memory a call reads or writes: a buffer of this communicator, or host memory where the backend takes it. */
export type Data<D extends DType = DType> = DeviceBuffer<D> | NamedArrays[D] | TypedHost<D>;

/** The dtype of some memory, where its type has one. */
export type DTypeOf<B> =
  B extends DeviceBuffer<infer D> ? D : B extends TypedHost<infer D> ? D : HostDType<B>;

type HostDType<B> = { [D in DType]: B extends NamedArrays[D] ? D : never }[DType];

/** The memory that a call resolves to: `R`, what was given to receive, and `Otherwise` where `R` is `undefined`. */
export type Received<R extends Data | undefined, Otherwise extends Data> = R extends Data
  ? R
  : Otherwise;

/** Accepted by every call. */
export interface CallOptions {
  /** Cancels the call before it is submitted or known to other processes; after that it aborts the communicator. */
  readonly signal?: AbortSignal | undefined;
  /** Deadline in milliseconds from this call on, `Infinity` for none; virtual time on the simulation. */
  readonly timeoutMs?: number | undefined;
}

/** Arguments of `allReduce`; `recv` left out: in place. */
export interface AllReduceArgs<S extends Data = Data, R extends Data | undefined = S | undefined>
  extends CallOptions {
  readonly send: S;
  readonly recv?: R & (Data<DTypeOf<S>> | undefined);
  readonly op: ReduceOp;
}

/** Arguments of `reduce`; `recv` is the root's, and left out there: in place. */
export interface ReduceArgs<S extends Data = Data, R extends Data | undefined = S | undefined>
  extends AllReduceArgs<S, R> {
  readonly root: number;
}

/** Arguments of `broadcast`: the root gives `send`, or `recv` alone for in place; the others give `recv`. */
export interface BroadcastArgs<S extends Data = Data, R extends Data | undefined = S | undefined>
  extends CallOptions {
  readonly send?: S | undefined;
  readonly recv?: R & (Data<DTypeOf<S>> | undefined);
  readonly root: number;
}

/** Arguments of `allGather`: `recv` is `size` times as long as `send`. */
export interface AllGatherArgs<S extends Data = Data, R extends Data = S> extends CallOptions {
  readonly send: S;
  readonly recv: R & Data<DTypeOf<S>>;
}

/** Arguments of `allGatherv`; the counts are the same on all ranks; `recv` is as long as their sum unless offsets say more. */
export interface AllGathervArgs<S extends Data = Data, R extends Data = S>
  extends AllGatherArgs<S, R> {
  readonly recvCounts: readonly number[];
  readonly recvOffsets?: readonly number[] | undefined;
}

/** Arguments of `reduceScatter`: `send` is `size` times as long as `recv`. */
export interface ReduceScatterArgs<S extends Data = Data, R extends Data = S> extends CallOptions {
  readonly send: S;
  readonly recv: R & Data<DTypeOf<S>>;
  readonly op: ReduceOp;
}

/** Arguments of `reduceScatterv`; the counts are the same on all ranks. */
export interface ReduceScattervArgs<S extends Data = Data, R extends Data = S>
  extends ReduceScatterArgs<S, R> {
  readonly sendCounts: readonly number[];
}

/** Arguments of `allToAll`: both buffers hold `size` blocks of the same length. */
export interface AllToAllArgs<S extends Data = Data, R extends Data = S> extends CallOptions {
  readonly send: S;
  readonly recv: R & Data<DTypeOf<S>>;
}

/** Arguments of `allToAllv`. */
export interface AllToAllvArgs<
  S extends Data = Data,
  R extends Data | undefined = DeviceBuffer<DTypeOf<S>> | undefined,
> extends CallOptions {
  readonly send: S;
  /** Left out: allocated at the length that arrives. Else at least that long. */
  readonly recv?: R & (Data<DTypeOf<S>> | undefined);
  /** Elements for each rank. */
  readonly sendCounts: readonly number[];
  /** Where each rank's elements start in `send`; left out: one after another. */
  readonly sendOffsets?: readonly number[] | undefined;
  /** Elements from each rank; left out: exchanged first. */
  readonly recvCounts?: readonly number[] | undefined;
  /** Where each rank's elements start in `recv`; left out: one after another. */
  readonly recvOffsets?: readonly number[] | undefined;
}

/** The value of an all-to-allv. */
export interface AllToAllvResult<R extends Data = DeviceBuffer> {
  readonly recv: R;
  readonly recvCounts: readonly number[];
  readonly recvOffsets: readonly number[];
}

/** Arguments of `gather`; `recv` and the counts (for ranks that send different lengths) are the root's. */
export interface GatherArgs<S extends Data = Data, R extends Data | undefined = S | undefined>
  extends CallOptions {
  readonly send: S;
  readonly recv?: R & (Data<DTypeOf<S>> | undefined);
  readonly root: number;
  readonly recvCounts?: readonly number[] | undefined;
  readonly recvOffsets?: readonly number[] | undefined;
}

/** Arguments of `scatter`; `send` and the counts (for ranks that receive different lengths) are the root's. */
export interface ScatterArgs<S extends Data = Data, R extends Data = S> extends CallOptions {
  readonly send?: S | undefined;
  readonly recv: R & Data<DTypeOf<S>>;
  readonly root: number;
  readonly sendCounts?: readonly number[] | undefined;
  readonly sendOffsets?: readonly number[] | undefined;
}

/** Arguments of `send`. */
export interface SendArgs<S extends Data = Data> extends CallOptions {
  readonly send: S;
  readonly peer: number;
}

/** Arguments of `recv`. */
export interface RecvArgs<R extends Data = Data> extends CallOptions {
  readonly recv: R;
  readonly peer: number;
}

/** Arguments of `sendRecv`. */
export interface SendRecvArgs<S extends Data = Data, R extends Data = S> extends CallOptions {
  readonly send: S;
  readonly recv: R & Data<DTypeOf<S>>;
  /** Rank that gets `send`. */
  readonly to: number;
  /** Rank that `recv` comes from. */
  readonly from: number;
}

/** Arguments of `split`. */
export interface SplitArgs extends CallOptions {
  /** Ranks with the same color, a safe integer from 0 on, form a communicator; `undefined` joins none. */
  readonly color: number | undefined;
  /** Order of the ranks in it: any safe integer, 0 when left out; equal keys keep the parent's order. */
  readonly key?: number | undefined;
  /**
   * `"own"`: each rank has a stream of its own for the communicator, where `comm.capabilities.ownStreams`; alike on all ranks.
   * Left out, its calls take effect in one order with those of the rank's other communicators.
   */
  readonly stream?: "own" | undefined;
}
