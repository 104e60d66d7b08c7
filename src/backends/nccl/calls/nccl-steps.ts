/**
 * Each collective as calls of NCCL. NCCL's own collectives are one call per rank. The others are sends and receives of a group,
 * which omit empty blocks on both sides. A reduce-scatter with different lengths is one reduce per root, each in a separate
 * group: several collectives in one group would be chunked differently. Gather and scatter stay sends and receives where NCCL
 * has them: ranks beside the root cannot tell whether its blocks have one length.
 */
import type { RankCall } from "../../../api/backend-entry.ts";
import { bytesOf, type DeviceBuffer } from "../../../api/index.ts";
import { dataTypes } from "../device/nccl-types.ts";
import type { NcclDataCalls } from "../result/nccl.ts";

/** The NCCL calls that move and reduce data, as far as the library has them. */
export interface DataCalls extends NcclDataCalls {
  readonly hasAllToAll: boolean;
}

/** One local rank's call, with what NCCL needs to make it. */
export interface NcclCallArgs {
  readonly call: RankCall;
  /** Addresses of the buffers; the null pointer for none. */
  readonly send: bigint;
  readonly recv: bigint;
  readonly comm: bigint;
  readonly stream: bigint;
  /** The reduce operator as NCCL numbers it; 0 where there is none. */
  readonly op: number;
  /** Number of ranks of the communicator. */
  readonly size: number;
  /** One element of scratch memory, for the barrier. */
  readonly scratch: bigint;
}

/** Makes the NCCL calls of one part; those of all parts belong into one group. */
export type NcclStep = (nccl: DataCalls, part: NcclCallArgs) => void;

/** The groups of a collective, one after another. */
export function stepsOf({ collective }: RankCall, size: number): readonly NcclStep[] {
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
      return steps.allToAll;
    case "allToAllv":
      return steps.allToAllv;
    case "reduceScatterv":
      return Array.from({ length: size }, (_, root) => reduceTo(root));
    default:
      return [];
  }
}

const none = 0n;

/** Address of a buffer; the null pointer for no buffer. */
export function addressOf(buffer: DeviceBuffer | undefined): bigint {
  return buffer === undefined ? none : buffer.ptr;
}

/** Address of an element of a buffer that starts at `from`. */
function at(from: bigint, buffer: DeviceBuffer | undefined, element: number): bigint {
  if (buffer === undefined || element === 0) return from;
  return from + BigInt(element * bytesOf(buffer.dtype));
}

function typeOf({ dtype }: RankCall): number {
  return dtype === undefined ? 0 : dataTypes[dtype];
}

const allReduce: NcclStep = (nccl, { call, send, recv, comm, stream, op }) =>
  nccl.allReduce(send, recv, call.count, typeOf(call), op, comm, stream);

const reduce: NcclStep = (nccl, { call, send, recv, comm, stream, op }) =>
  nccl.reduce(send, recv, call.count, typeOf(call), op, call.root, comm, stream);

const broadcast: NcclStep = (nccl, { call, send, recv, comm, stream }) =>
  nccl.broadcast(
    call.send === undefined ? recv : send,
    recv,
    call.count,
    typeOf(call),
    call.root,
    comm,
    stream,
  );

const allGather: NcclStep = (nccl, { call, send, recv, comm, stream }) =>
  nccl.allGather(send, recv, call.count, typeOf(call), comm, stream);

const reduceScatter: NcclStep = (nccl, { call, send, recv, comm, stream, op }) =>
  nccl.reduceScatter(send, recv, call.count, typeOf(call), op, comm, stream);

/** Never a count of 0: NCCL would drop such a call. */
const barrier: NcclStep = (nccl, { comm, stream, scratch }) =>
  nccl.allReduce(scratch, scratch, 1, dataTypes.uint8, 0, comm, stream);

/** One reduce of a reduce-scatter: block `root` goes to that rank. */
function reduceTo(root: number): NcclStep {
  return (nccl, { call, send, recv, comm, stream, op }) => {
    const counts = call.sendCounts as readonly number[];
    const count = counts[root] as number;
    if (count === 0) return;
    const start = (call.sendOffsets?.[root] ?? sumBefore(counts, root)) as number;
    const target = call.rank === root ? recv : none;
    nccl.reduce(at(send, call.send, start), target, count, typeOf(call), op, root, comm, stream);
  };
}

const allGatherv: NcclStep = (nccl, part) => {
  const { call, size } = part;
  const counts = call.recvCounts as readonly number[];
  for (let peer = 0; peer < size; peer++) {
    sendTo(nccl, part, peer, 0, counts[call.rank] as number);
    receiveFrom(nccl, part, peer, offset(call.recvOffsets, counts, peer), counts[peer] as number);
  }
};

const gather: NcclStep = (nccl, part) => {
  const { call, size } = part;
  sendTo(nccl, part, call.root, 0, call.send?.length ?? 0);
  if (call.rank !== call.root) return;
  for (let peer = 0; peer < size; peer++) {
    const counts = call.recvCounts;
    const count = counts?.[peer] ?? call.count;
    const start = counts === undefined ? peer * count : offset(call.recvOffsets, counts, peer);
    receiveFrom(nccl, part, peer, start, count);
  }
};

const scatter: NcclStep = (nccl, part) => {
  const { call, size } = part;
  if (call.rank === call.root) {
    for (let peer = 0; peer < size; peer++) {
      const counts = call.sendCounts;
      const count = counts?.[peer] ?? call.count;
      const start = counts === undefined ? peer * count : offset(call.sendOffsets, counts, peer);
      sendTo(nccl, part, peer, start, count);
    }
  }
  receiveFrom(nccl, part, call.root, 0, call.recv?.length ?? 0);
};

/** One call where the library has it, since 2.28; the kernels are the same. */
const allToAll: NcclStep = (nccl, part) => {
  const { call, send, recv, comm, stream } = part;
  if (!nccl.hasAllToAll) allToAllv(nccl, part);
  else if (call.count > 0) nccl.allToAll(send, recv, call.count, typeOf(call), comm, stream);
};

/** Pairwise: in step k rank r sends to r+k and receives from r−k, the order in which NCCL itself serves peers. */
const allToAllv: NcclStep = (nccl, part) => {
  const { call, size } = part;
  for (let step = 0; step < size; step++) {
    const to = (call.rank + step) % size;
    const source = (call.rank - step + size) % size;
    const { sendCounts, recvCounts, count } = call;
    const sent = sendCounts?.[to] ?? count;
    const received = recvCounts?.[source] ?? count;
    const sendStart =
      sendCounts === undefined ? to * count : offset(call.sendOffsets, sendCounts, to);
    const recvStart =
      recvCounts === undefined ? source * count : offset(call.recvOffsets, recvCounts, source);
    sendTo(nccl, part, to, sendStart, sent);
    receiveFrom(nccl, part, source, recvStart, received);
  }
};

function sendTo(
  nccl: DataCalls,
  part: NcclCallArgs,
  peer: number,
  start: number,
  count: number,
): void {
  const { call, comm, stream } = part;
  if (count > 0)
    nccl.send(at(part.send, call.send, start), count, typeOf(call), peer, comm, stream);
}

function receiveFrom(
  nccl: DataCalls,
  part: NcclCallArgs,
  peer: number,
  start: number,
  count: number,
): void {
  const { call, comm, stream } = part;
  if (count > 0)
    nccl.recv(at(part.recv, call.recv, start), count, typeOf(call), peer, comm, stream);
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
  const nothing = (): void => undefined;
  const meet = (_buffer: bigint, _count: number, _dtype: number, peer: number): void => {
    if (peer !== call.rank) peers.add(peer);
  };
  const issuing: DataCalls = {
    hasAllToAll: false,
    allToAll: nothing,
    allReduce: nothing,
    reduce: nothing,
    broadcast: nothing,
    allGather: nothing,
    reduceScatter: nothing,
    send: meet,
    recv: meet,
  };
  const noAddresses = { send: 0n, recv: 0n, comm: 0n, stream: 0n, scratch: 0n, op: 0 };
  const part: NcclCallArgs = { ...noAddresses, call, size };
  for (const step of stepsOf(call, size)) step(issuing, part);
  return peers;
}
