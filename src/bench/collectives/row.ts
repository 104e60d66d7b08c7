/**
 * The facts of one collective that a benchmark needs: how nccl-tests cuts a size into counts, its bus factor, what must
 * arrive where, and the call.
 *
 * `arrives` is a reading of the collective's meaning of its own: it shares nothing with the specifications from which
 * the library makes and judges its programs.
 */
import type {
  CollectiveName,
  Communicator,
  DeviceBuffer,
  DType,
  NamedReduceOp,
  Question,
} from "../../api/index.ts";
import type { TrafficMatrix } from "../traffic.ts";

/** The counts of one measured call. */
export interface CallShape {
  readonly ranks: number;
  /** -1 where the collective has none. */
  readonly root: number;
  /** Elements in nccl-tests' column `count`. */
  readonly count: number;
  /** Elements behind nccl-tests' column `size`. */
  readonly sizeElements: number;
  /** Elements of each rank's block, where they differ. */
  readonly counts?: readonly number[] | undefined;
  /** The counts from each rank to each rank; for an all-to-allv. */
  readonly traffic?: TrafficMatrix | undefined;
}

/** A run of elements of a rank's output and where it comes from. */
export interface Arrival {
  readonly at: number;
  readonly length: number;
  /** The rank with the copied input; `"fold"` for the fold of every rank's. */
  readonly from: number | "fold";
  /** First element in the inputs. */
  readonly index: number;
}

/** The buffers and arguments of one rank's call. */
export interface CallData {
  readonly shape: CallShape;
  readonly send: DeviceBuffer;
  readonly recv: DeviceBuffer;
  readonly op: NamedReduceOp;
}

/** Where the two buffers of an in-place call lie in the one that holds both. */
export interface InPlace {
  readonly sendAt: number;
  readonly recvAt: number;
}

/** The spread of the blocks of a v-form. */
export interface Skew {
  /** From 0, all alike, to 1. */
  readonly spread: number;
  readonly seed: number;
}

/** Everything the benchmark knows about one collective. */
export interface MeasuredCollective {
  readonly collective: CollectiveName;
  readonly reduces: boolean;
  readonly rooted: boolean;
  /** False for a barrier, which has no buffers and so no sizes. */
  readonly moves: boolean;
  /** Bus bandwidth over algorithm bandwidth. */
  readonly busFactor: (ranks: number) => number;
  /** Cuts `elements`, the sweep's size, into counts. */
  readonly shape: (
    elements: number,
    ranks: number,
    skew: Skew,
  ) => Omit<CallShape, "root" | "ranks">;
  /** Elements of a rank's input; 0 where it has none. */
  readonly sendLength: (shape: CallShape, rank: number) => number;
  /** The right output of a rank, all of it. */
  readonly arrives: (shape: CallShape, rank: number) => Arrival[];
  /** Left out: there is no in-place form. */
  readonly inPlace?: ((shape: CallShape, rank: number) => InPlace) | undefined;
  /** Makes the call on one rank. */
  readonly call: (comm: Communicator, data: CallData) => PromiseLike<unknown>;
}

/** A measured call as an argument of `explain` and `supports`. */
export function questionOf(
  row: MeasuredCollective,
  shape: CallShape,
  dtype: DType,
  op: NamedReduceOp,
): Question {
  return {
    collective: row.collective,
    dtype: row.moves ? dtype : undefined,
    op: row.reduces ? op : undefined,
    count: shape.count,
    root: row.rooted ? shape.root : undefined,
    counts: shape.traffic ?? (shape.counts && [shape.counts]),
  };
}

/** Elements of a rank's output. */
export function recvLength(row: MeasuredCollective, shape: CallShape, rank: number): number {
  return sum(row.arrives(shape, rank).map(({ length }) => length));
}

/** The part of a rank's data that leaves it: nccl-tests' factor of everything that holds a block per rank. */
export function othersShare(ranks: number): number {
  return (ranks - 1) / ranks;
}

/** The size is that of either buffer. */
export function wholeShape(elements: number): { count: number; sizeElements: number } {
  return { count: elements, sizeElements: elements };
}

/** The size is that of the larger buffer, which holds a block of `count` for each rank. */
export function blockShape(
  elements: number,
  ranks: number,
): { count: number; sizeElements: number } {
  const count = Math.floor(elements / ranks);
  return { count, sizeElements: count * ranks };
}

/** In place, both buffers are the same range. */
export function sameRange(): InPlace {
  return { sendAt: 0, recvAt: 0 };
}

/** Ranks from 0 on. */
export function ranksUpTo(ranks: number): number[] {
  return Array.from({ length: ranks }, (_, rank) => rank);
}

/** Elements of all blocks together. */
export function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
