/**
 * Each collective as calls of NCCL. NCCL's own collectives are one call per rank. The others are sends and receives of a group,
 * which omit empty blocks on both sides. A reduce-scatter with different lengths is one reduce per root, each in a separate
 * group: several collectives in one group would be chunked differently. Gather and scatter stay sends and receives where NCCL
 * has them: ranks beside the root cannot tell whether its blocks have one length.
 */
import type { RankCall } from "../../../api/backend-entry.ts";
import { bytesOf, type DeviceBuffer, type DType } from "../../../api/index.ts";
import { dataTypes, isFloat8 } from "../device/nccl-types.ts";
import type { CallGroup, DataCall } from "../result/nccl.ts";

/** One local rank's call, with what NCCL needs to make it. */
export interface NcclCallArgs {
  readonly call: RankCall;
  /** Addresses of the buffers; the null pointer for none. */
  readonly send: bigint;
  readonly recv: bigint;
  readonly count: number;
  /** The dtype as NCCL numbers it; 0 where there is none. */
  readonly type: number;
  /** The reduce operator as NCCL numbers it; 0 where there is none. */
  readonly op: number;
  readonly root: number;
  readonly comm: bigint;
  readonly stream: bigint;
  /** Number of ranks of the communicator. */
  readonly size: number;
  /** One element of scratch memory, for the barrier. */
  readonly scratch: bigint;
}

/** The NCCL calls of one part; those of all parts belong into one group. */
type NcclStep = (part: NcclCallArgs) => readonly DataCall[];

/** The NCCL calls of a call, by the parts of the ranks here: groups, one after another. */
export function groupsOf(
  parts: readonly NcclCallArgs[],
  hasAllToAll: boolean,
): readonly CallGroup[] {
  const { call, size } = parts[0] as NcclCallArgs;
  return stepsOf(call, size, hasAllToAll)
    .map((step) => parts.flatMap(step))
    .filter(({ length }) => length > 0);
}

/** The steps of a collective, each of them a group. */
function stepsOf(
  { collective }: RankCall,
  size: number,
  hasAllToAll: boolean,
): readonly NcclStep[] {
  switch (collective) {
    case "allReduce":
      return steps.allReduce;
    case "reduce":
      return steps.reduce;
    case "broadcast":
      return steps.broadcast;
    case "allGather":
      return steps.allGather;
    case "reduceScatter":
      return steps.reduceScatter;
    case "barrier":
      return steps.barrier;
    case "allGatherv":
      return steps.allGatherv;
    case "gather":
      return steps.gather;
    case "scatter":
      return steps.scatter;
    case "allToAll":
      return hasAllToAll ? steps.allToAll : steps.allToAllv;
    case "allToAllv":
      return steps.allToAllv;
    case "reduceScatterv":
      return Array.from({ length: size }, (_, root) => reduceTo(root));
    default:
      return [];
  }
}

const none = 0n;

/** A dtype as NCCL numbers it; 0 for none. */
export function typeOf(dtype: DType | undefined): number {
  return dtype === undefined ? 0 : dataTypes[dtype];
}

/** Address of a buffer; the null pointer for no buffer. */
export function addressOf(buffer: DeviceBuffer | undefined): bigint {
  return buffer === undefined ? none : buffer.ptr;
}

/** Address of an element of a buffer that starts at `from`. */
function at(from: bigint, buffer: DeviceBuffer | undefined, element: number): bigint {
  if (buffer === undefined || element === 0) return from;
  return from + BigInt(element * bytesOf(buffer.dtype));
}

const allReduce: NcclStep = ({ send, recv, count, type, op, comm, stream }) => [
  { name: "allReduce", args: [send, recv, count, type, op, comm, stream] },
];

const reduce: NcclStep = ({ send, recv, count, type, op, root, comm, stream }) => [
  { name: "reduce", args: [send, recv, count, type, op, root, comm, stream] },
];

const broadcast: NcclStep = ({ call, send, recv, count, type, root, comm, stream }) => {
  const from = call.send === undefined ? recv : send;
  return [{ name: "broadcast", args: [from, recv, count, type, root, comm, stream] }];
};

const allGather: NcclStep = ({ send, recv, count, type, comm, stream }) => [
  { name: "allGather", args: [send, recv, count, type, comm, stream] },
];

const reduceScatter: NcclStep = ({ send, recv, count, type, op, comm, stream }) => [
  { name: "reduceScatter", args: [send, recv, count, type, op, comm, stream] },
];

/** Never a count of 0: NCCL would drop such a call. */
const barrier: NcclStep = ({ comm, stream, scratch }) => [
  { name: "allReduce", args: [scratch, scratch, 1, dataTypes.uint8, 0, comm, stream] },
];

/** One reduce of a reduce-scatter: block `root` goes to that rank. */
function reduceTo(root: number): NcclStep {
  return ({ call, send, recv, type, op, comm, stream }) => {
    const counts = call.sendCounts as readonly number[];
    const count = counts[root] as number;
    if (count === 0) return [];
    const from = at(send, call.send, call.sendOffsets?.[root] ?? sumBefore(counts, root));
    const target = call.rank === root ? recv : none;
    return [{ name: "reduce", args: [from, target, count, type, op, root, comm, stream] }];
  };
}

const allGatherv: NcclStep = (part) => {
  const { call, size } = part;
  const counts = call.recvCounts as readonly number[];
  const calls: DataCall[] = [];
  for (let peer = 0; peer < size; peer++) {
    sendTo(calls, part, peer, 0, counts[call.rank] as number);
    const start = offset(call.recvOffsets, counts, peer);
    receiveFrom(calls, part, peer, start, counts[peer] as number);
  }
  return calls;
};

const gather: NcclStep = (part) => {
  const { call, size } = part;
  const calls: DataCall[] = [];
  sendTo(calls, part, call.root, 0, call.send?.length ?? 0);
  if (call.rank !== call.root) return calls;
  for (let peer = 0; peer < size; peer++) {
    const counts = call.recvCounts;
    const count = counts?.[peer] ?? call.count;
    const start = counts === undefined ? peer * count : offset(call.recvOffsets, counts, peer);
    receiveFrom(calls, part, peer, start, count);
  }
  return calls;
};

const scatter: NcclStep = (part) => {
  const { call, size } = part;
  const calls: DataCall[] = [];
  if (call.rank === call.root) {
    for (let peer = 0; peer < size; peer++) {
      const counts = call.sendCounts;
      const count = counts?.[peer] ?? call.count;
      const start = counts === undefined ? peer * count : offset(call.sendOffsets, counts, peer);
      sendTo(calls, part, peer, start, count);
    }
  }
  receiveFrom(calls, part, call.root, 0, call.recv?.length ?? 0);
  return calls;
};

/** One call where the library has it, since 2.28; the kernels are the same. */
const allToAll: NcclStep = ({ send, recv, count, type, comm, stream }) =>
  count === 0 ? [] : [{ name: "alltoAll", args: [send, recv, count, type, comm, stream] }];

/** Pairwise: in step k rank r sends to r+k and receives from r−k, the order in which NCCL itself serves peers. */
const allToAllv: NcclStep = (part) => {
  const { call, size } = part;
  const { sendCounts, recvCounts, count } = call;
  const calls: DataCall[] = [];
  for (let step = 0; step < size; step++) {
    const to = (call.rank + step) % size;
    const source = (call.rank - step + size) % size;
    const sent = sendCounts?.[to] ?? count;
    const received = recvCounts?.[source] ?? count;
    const sendStart =
      sendCounts === undefined ? to * count : offset(call.sendOffsets, sendCounts, to);
    const recvStart =
      recvCounts === undefined ? source * count : offset(call.recvOffsets, recvCounts, source);
    sendTo(calls, part, to, sendStart, sent);
    receiveFrom(calls, part, source, recvStart, received);
  }
  return calls;
};

function sendTo(
  calls: DataCall[],
  { call, send, type, comm, stream }: NcclCallArgs,
  peer: number,
  start: number,
  count: number,
): void {
  if (count === 0) return;
  const from = at(send, call.send, start);
  calls.push({ name: "send", args: [from, count, type, peer, comm, stream] });
}

function receiveFrom(
  calls: DataCall[],
  { call, recv, type, comm, stream }: NcclCallArgs,
  peer: number,
  start: number,
  count: number,
): void {
  if (count === 0) return;
  const into = at(recv, call.recv, start);
  calls.push({ name: "recv", args: [into, count, type, peer, comm, stream] });
}

function offset(
  offsets: readonly number[] | undefined,
  counts: readonly number[],
  index: number,
): number {
  return offsets?.[index] ?? sumBefore(counts, index);
}

function sumBefore(counts: readonly number[], index: number): number {
  let sum = 0;
  for (let i = 0; i < index; i++) sum += counts[i] as number;
  return sum;
}

/** Collectives that are one group whatever the number of ranks. */
const steps = {
  allReduce: [allReduce],
  reduce: [reduce],
  broadcast: [broadcast],
  allGather: [allGather],
  reduceScatter: [reduceScatter],
  barrier: [barrier],
  allGatherv: [allGatherv],
  gather: [gather],
  scatter: [scatter],
  allToAll: [allToAll],
  allToAllv: [allToAllv],
} as const;

/**
 * True if a copy replaces a call that NCCL would refuse. For one rank, NCCL has no kernels of multiplying float8 operators. An
 * average over one rank equals its contribution bit for bit and becomes a copy in stream order.
 */
export function isSingleRankCopy({ dtype, op }: RankCall, size: number): boolean {
  return size === 1 && op === "avg" && isFloat8(dtype);
}

/** Collectives that are sends and receives, on every backend. */
const pairwiseCollectives = new Set<RankCall["collective"]>([
  ...(["gather", "scatter", "allGatherv", "allToAll", "allToAllv"] as const),
]);

/** True when a call sends both ways between all ranks, by the arguments of each rank. */
export function connectsAll({ collective, count, recvCounts }: RankCall): boolean {
  if (collective === "allToAllv") return recvCounts === undefined;
  return collective === "allToAll" && count > 0;
}

/**
 * The other ranks that a rank's call sends to or receives from; the counts of an all-to-allv are known by then. None for
 * collectives that NCCL has itself, beside the all-to-all.
 */
export function peersOf(call: RankCall, size: number): Set<number> {
  const peers = new Set<number>();
  if (!pairwiseCollectives.has(call.collective)) return peers;
  const zeros = { send: 0n, recv: 0n, count: 0, type: 0, op: 0, comm: 0n, stream: 0n, scratch: 0n };
  const part: NcclCallArgs = { ...zeros, call, root: call.root, size };
  for (const { name, args } of groupsOf([part], false).flat()) {
    if ((name === "send" || name === "recv") && args[3] !== call.rank) peers.add(args[3]);
  }
  return peers;
}
