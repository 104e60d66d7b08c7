/** Each collective as the page calls it: how long a rank's buffers are, and the call itself. */
import type { Communicator, DeviceBuffer, ReduceOp, SpecifiedCollective } from "twinccl";
import { specifications } from "twinccl";
import type { State } from "../state.ts";

/** One collective. Lengths are elements. */
interface CallRow {
  sendLength(state: State, rank: number): number;
  recvLength(state: State, rank: number): number;
  call(comm: Communicator, buffers: Buffers, state: State): PromiseLike<unknown>;
}

/** A rank's buffers; empty where it has none. */
export interface Buffers {
  readonly send: DeviceBuffer;
  readonly recv: DeviceBuffer;
}

const whole = (state: State): number => state.count;
const blocks = ({ count, ranks }: State): number => count * ranks;
const nothing = (): number => 0;
const atRoot =
  (length: (state: State) => number) =>
  (state: State, rank: number): number =>
    rank === state.root ? length(state) : 0;
const sum = (counts: readonly number[]): number => counts.reduce((total, each) => total + each, 0);

export const calls: { readonly [C in SpecifiedCollective]: CallRow } = {
  allReduce: {
    sendLength: whole,
    recvLength: whole,
    call: (comm, { send, recv }, state) => comm.allReduce({ send, recv, op: operatorOf(state) }),
  },
  reduce: {
    sendLength: whole,
    recvLength: atRoot(whole),
    call: (comm, { send, recv }, state) => {
      const args = { send, op: operatorOf(state), root: state.root };
      return comm.reduce(comm.rank === state.root ? { ...args, recv } : args);
    },
  },
  broadcast: {
    sendLength: atRoot(whole),
    recvLength: whole,
    call: (comm, { send, recv }, { root }) =>
      comm.broadcast(comm.rank === root ? { send, recv, root } : { recv, root }),
  },
  allGather: {
    sendLength: whole,
    recvLength: blocks,
    call: (comm, { send, recv }) => comm.allGather({ send, recv }),
  },
  allGatherv: {
    sendLength: (state, rank) => rowCounts(state)[rank] ?? 0,
    recvLength: (state) => sum(rowCounts(state)),
    call: (comm, { send, recv }, state) =>
      comm.allGatherv({ send, recv, recvCounts: rowCounts(state) }),
  },
  reduceScatter: {
    sendLength: blocks,
    recvLength: whole,
    call: (comm, { send, recv }, state) =>
      comm.reduceScatter({ send, recv, op: operatorOf(state) }),
  },
  reduceScatterv: {
    sendLength: (state) => sum(rowCounts(state)),
    recvLength: (state, rank) => rowCounts(state)[rank] ?? 0,
    call: (comm, { send, recv }, state) =>
      comm.reduceScatterv({ send, recv, op: operatorOf(state), sendCounts: rowCounts(state) }),
  },
  allToAll: {
    sendLength: blocks,
    recvLength: blocks,
    call: (comm, { send, recv }) => comm.allToAll({ send, recv }),
  },
  allToAllv: {
    sendLength: (state, rank) => sum(matrixCounts(state)[rank] ?? []),
    recvLength: (state, rank) => sum(matrixCounts(state).map((row) => row[rank] ?? 0)),
    call: (comm, { send, recv }, state) => {
      const counts = matrixCounts(state);
      const sendCounts = counts[comm.rank] ?? [];
      const recvCounts = counts.map((row) => row[comm.rank] ?? 0);
      return comm.allToAllv({ send, recv, sendCounts, recvCounts });
    },
  },
  gather: {
    sendLength: whole,
    recvLength: atRoot(blocks),
    call: (comm, { send, recv }, { root }) =>
      comm.gather(comm.rank === root ? { send, recv, root } : { send, root }),
  },
  scatter: {
    sendLength: atRoot(blocks),
    recvLength: whole,
    call: (comm, { send, recv }, { root }) =>
      comm.scatter(comm.rank === root ? { send, recv, root } : { recv, root }),
  },
  barrier: { sendLength: nothing, recvLength: nothing, call: (comm) => comm.barrier() },
};

/** The operator, as a call takes it. */
export function operatorOf({ op, scalar }: State): ReduceOp {
  return op === "preMul" ? { preMul: scalar } : op;
}

/** True for a collective that moves data. */
export function moves({ collective }: State): boolean {
  return collective !== "barrier";
}

/** Counts of a v-form by rank: from few to many, `count` on average. */
function rowCounts({ ranks, count }: State): number[] {
  return Array.from({ length: ranks }, (_, rank) => skewed(count, rank, ranks));
}

/** Row i: what rank i sends to each rank. */
function matrixCounts({ ranks, count }: State): number[][] {
  return Array.from({ length: ranks }, (_, from) =>
    Array.from({ length: ranks }, (_, to) => skewed(count, (2 * from + to) % ranks, ranks)),
  );
}

/** Blocks of a v-form's buffers; `undefined` where all blocks are as long as `count`. */
export function blockCounts(state: State): readonly (readonly number[])[] | undefined {
  if (state.collective === "allToAllv") return matrixCounts(state);
  return state.collective.endsWith("v") ? [rowCounts(state)] : undefined;
}

/** True when the call reduces, or has a root. */
export function traits({ collective }: State): {
  readonly reduces: boolean;
  readonly rooted: boolean;
} {
  return specifications[collective];
}

function skewed(count: number, place: number, places: number): number {
  return Math.round((2 * count * (place + 1)) / (places + 1));
}
