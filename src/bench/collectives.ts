/**
 * The table of measured collectives: nccl-tests' division of sizes into counts, the bus factor, and the expected outputs.
 *
 * `arrives` defines each collective's meaning independently. It shares no code with the specifications from which the library
 * builds and verifies its programs.
 */
import {
  blockLengths,
  bufferLengths,
  hasInPlaceForm,
  inPlaceOffset,
  postCall,
} from "../api/collectives/call-layout.ts";
import {
  type CollectiveName,
  type Communicator,
  type DeviceBuffer,
  type DType,
  type NamedReduceOp,
  type Question,
  type SpecifiedCollective,
  specifications,
} from "../api/index.ts";
import { largest } from "../api/largest.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import {
  heaviestRank,
  skewedCounts,
  skewedTraffic,
  type TrafficMatrix,
  transposed,
} from "./traffic.ts";

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

/** A run of elements of a rank's output and its source. */
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

/** Offsets of the two buffers of an in-place call in their common buffer. */
export interface InPlace {
  readonly sendAt: number;
  readonly recvAt: number;
}

/** The spread of the blocks of a v-form. */
export interface Skew {
  /** From 0, all equal, to 1. */
  readonly spread: number;
  readonly seed: number;
}

/** The benchmark's data on one collective. */
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
  /** The whole expected output of a rank. */
  readonly arrives: (shape: CallShape, rank: number) => Arrival[];
  /** Left out without an in-place form. */
  readonly inPlace?: ((shape: CallShape, rank: number) => InPlace) | undefined;
  /** Makes the call on one rank. */
  readonly call: (comm: Communicator, data: CallData) => PromiseLike<unknown>;
}

/** Sent share of a rank's data: nccl-tests' bus factor for buffers with a block per rank. */
function othersShare(ranks: number): number {
  return (ranks - 1) / ranks;
}

/** The size of either buffer. */
function wholeShape(elements: number): { count: number; sizeElements: number } {
  return { count: elements, sizeElements: elements };
}

/** The size of the larger buffer, with a block of `count` for each rank. */
function blockShape(elements: number, ranks: number): { count: number; sizeElements: number } {
  const count = Math.floor(elements / ranks);
  return { count, sizeElements: count * ranks };
}

/** The size of the larger buffer, with a block for each rank, skewed by the benchmark's spread. */
function unevenShape(
  elements: number,
  ranks: number,
  { spread, seed }: Skew,
): { count: number; sizeElements: number; counts: readonly number[] } {
  const counts = skewedCounts(elements, ranks, spread, seed);
  return { count: largest(counts), sizeElements: sum(counts), counts };
}

/** The most bytes that a rank sends or receives, including its own block. */
function trafficShape(
  elements: number,
  ranks: number,
  { spread, seed }: Skew,
): { count: number; sizeElements: number; traffic: TrafficMatrix } {
  const traffic = skewedTraffic(elements, ranks, spread, seed);
  const heaviest = heaviestRank(traffic);
  return { count: heaviest, sizeElements: heaviest, traffic };
}

/** Block `block` of every rank, one after another. */
function blocksFromAll({ count, ranks }: CallShape, block: number): Arrival[] {
  return Array.from({ length: ranks }, (_, from) => ({
    at: from * count,
    length: count,
    from,
    index: block * count,
  }));
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}

function sumBefore(counts: readonly number[], rank: number): number {
  return sum(counts.slice(0, rank));
}

/** The row of a collective; its call follows from the collective. */
function measured(
  collective: SpecifiedCollective,
  facts: Pick<MeasuredCollective, "busFactor" | "shape" | "arrives">,
): MeasuredCollective {
  const { reduces, rooted } = specifications[collective];
  const inPlace = (shape: CallShape, rank: number): InPlace => {
    const offset = inPlaceOffset(collective, shape, rank) ?? 0;
    return { sendAt: Math.max(0, offset), recvAt: Math.max(0, -offset) };
  };
  return {
    ...facts,
    collective,
    reduces,
    rooted,
    moves: collective !== "barrier",
    sendLength: (shape, rank) => bufferLengths(collective, shape, rank).send,
    ...(hasInPlaceForm(collective) && { inPlace }),
    call: (comm, { shape, send, recv, op }) => {
      const { root } = shape;
      if (shape.counts === undefined && shape.traffic === undefined) {
        return postCall(comm, collective, { send, recv, op, root });
      }
      const lengths = blockLengths(collective, shape, comm.rank);
      const counts = { sendCounts: lengths.send, recvCounts: lengths.recv };
      return postCall(comm, collective, { send, recv, op, root, ...counts });
    },
  };
}

/** As nccl-tests' sendrecv: every rank sends to the next one. */
const sendRecv: MeasuredCollective = {
  collective: "sendRecv",
  reduces: false,
  rooted: false,
  moves: true,
  busFactor: () => 1,
  shape: wholeShape,
  sendLength: ({ count }) => count,
  arrives: ({ count, ranks }, rank) => [
    { at: 0, length: count, from: (rank + ranks - 1) % ranks, index: 0 },
  ],
  call: (comm, { send, recv, shape: { ranks } }) =>
    comm.sendRecv({
      send,
      recv,
      to: (comm.rank + 1) % ranks,
      from: (comm.rank + ranks - 1) % ranks,
    }),
};

/** Every measured collective; a backend may lack some. A new one is a row. */
export const measuredCollectives: readonly MeasuredCollective[] = [
  measured("allReduce", {
    busFactor: (ranks) => 2 * othersShare(ranks),
    shape: wholeShape,
    arrives: ({ count }) => [{ at: 0, length: count, from: "fold", index: 0 }],
  }),
  measured("reduce", {
    busFactor: () => 1,
    shape: wholeShape,
    arrives: ({ count, root }, rank) =>
      rank === root ? [{ at: 0, length: count, from: "fold", index: 0 }] : [],
  }),
  measured("broadcast", {
    busFactor: () => 1,
    shape: wholeShape,
    arrives: ({ count, root }) => [{ at: 0, length: count, from: root, index: 0 }],
  }),
  measured("allGather", {
    busFactor: othersShare,
    shape: blockShape,
    arrives: (shape) => blocksFromAll(shape, 0),
  }),
  measured("allGatherv", {
    busFactor: othersShare,
    shape: unevenShape,
    arrives: ({ counts = [] }) =>
      counts.map((length, from) => ({ at: sumBefore(counts, from), length, from, index: 0 })),
  }),
  measured("reduceScatter", {
    busFactor: othersShare,
    shape: blockShape,
    arrives: ({ count }, rank) => [{ at: 0, length: count, from: "fold", index: rank * count }],
  }),
  measured("reduceScatterv", {
    busFactor: othersShare,
    shape: unevenShape,
    arrives: ({ counts = [] }, rank) => [
      { at: 0, length: counts[rank] ?? 0, from: "fold", index: sumBefore(counts, rank) },
    ],
  }),
  measured("allToAll", {
    busFactor: othersShare,
    shape: blockShape,
    arrives: blocksFromAll,
  }),
  measured("allToAllv", {
    busFactor: othersShare,
    shape: trafficShape,
    arrives: ({ traffic = [] }, rank) => {
      const lengths = transposed(traffic)[rank] ?? [];
      return lengths.map((length, from) => ({
        at: sumBefore(lengths, from),
        length,
        from,
        index: sumBefore(traffic[from] ?? [], rank),
      }));
    },
  }),
  measured("gather", {
    busFactor: othersShare,
    shape: blockShape,
    arrives: (shape, rank) => (rank === shape.root ? blocksFromAll(shape, 0) : []),
  }),
  measured("scatter", {
    busFactor: othersShare,
    shape: blockShape,
    arrives: ({ count, root }, rank) => [{ at: 0, length: count, from: root, index: rank * count }],
  }),
  sendRecv,
  measured("barrier", {
    busFactor: () => 0,
    shape: () => wholeShape(0),
    arrives: () => [],
  }),
];

/** The row of a collective in any spelling: `allReduce`, `all-reduce`, `all_reduce`, `allreduce`. */
export function findCollective(name: string): MeasuredCollective | undefined {
  if (typeof name !== "string") throw invalid("findCollective", "name", textOf(name), "a string");
  const bare = name.replace(/[-_]/g, "").toLowerCase();
  return measuredCollectives.find(({ collective }) => collective.toLowerCase() === bare);
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
