/**
 * Each collective as calls of NCCL. NCCL's own collectives are one call per rank. The others are sends and receives of a group,
 * which omit empty blocks on both sides. A reduce-scatter with different lengths is one reduce per root, each in a separate
 * group: several collectives in one group would be chunked differently. Gather and scatter stay sends and receives where NCCL
 * has them: ranks beside the root cannot tell whether its blocks have one length.
 */
import type { RankCall } from "../../../api/backend-entry.ts";
import {
  bytesOf,
  type CollectiveName,
  type DeviceBuffer,
  type DType,
  type SpecifiedCollective,
  specifications,
} from "../../../api/index.ts";
import { dataTypes, isFloat8 } from "../device/nccl-types.ts";
import type { CallGroup, DataCall } from "../result/nccl.ts";

/** One local rank's call, with what NCCL needs to make it. */
export interface NcclCallArgs {
  readonly call: RankCall;
  /** Addresses of the buffers; the null pointer for none. */
  readonly send: bigint;
  readonly recv: bigint;
  /** The dtype as NCCL numbers it; 0 where there is none. */
  readonly type: number;
  /** The reduce operator as NCCL numbers it; 0 where there is none. */
  readonly op: number;
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

/** The steps of a collective, each of them a group; none for a control call. */
function stepsOf(
  { collective }: RankCall,
  size: number,
  hasAllToAll: boolean,
): readonly NcclStep[] {
  if (!isSpecified(collective)) return [];
  if (collective === "reduceScatterv") return ranksOf(size).map(reduceTo);
  if (collective === "allToAll" && hasAllToAll) return [allToAll];
  return [native[collective] ?? pairwise];
}

function isSpecified(collective: CollectiveName): collective is SpecifiedCollective {
  return collective in specifications;
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

/** NCCL's own collectives: one call per rank. */
const native: { readonly [C in SpecifiedCollective]?: NcclStep } = {
  allReduce: ({ call: { count }, send, recv, type, op, comm, stream }) => [
    { name: "allReduce", args: [send, recv, count, type, op, comm, stream] },
  ],
  reduce: ({ call: { count, root }, send, recv, type, op, comm, stream }) => [
    { name: "reduce", args: [send, recv, count, type, op, root, comm, stream] },
  ],
  broadcast: ({ call, send, recv, type, comm, stream }) => {
    const from = call.send === undefined ? recv : send;
    return [{ name: "broadcast", args: [from, recv, call.count, type, call.root, comm, stream] }];
  },
  allGather: ({ call: { count }, send, recv, type, comm, stream }) => [
    { name: "allGather", args: [send, recv, count, type, comm, stream] },
  ],
  reduceScatter: ({ call: { count }, send, recv, type, op, comm, stream }) => [
    { name: "reduceScatter", args: [send, recv, count, type, op, comm, stream] },
  ],
  /** Never a count of 0: NCCL would drop such a call. */
  barrier: ({ comm, stream, scratch }) => [
    { name: "allReduce", args: [scratch, scratch, 1, dataTypes.uint8, 0, comm, stream] },
  ],
};

/** One reduce of a reduce-scatter: block `root` goes to that rank. */
function reduceTo(root: number): NcclStep {
  return ({ call, send, recv, type, op, comm, stream }) => {
    const { start, count } = blockOf(call, "send", root);
    if (count === 0) return [];
    const from = at(send, call.send, start);
    const target = call.rank === root ? recv : none;
    return [{ name: "reduce", args: [from, target, count, type, op, root, comm, stream] }];
  };
}

/** One call where the library has it, since 2.28; the kernels are the same. */
const allToAll: NcclStep = ({ call: { count }, send, recv, type, comm, stream }) =>
  count === 0 ? [] : [{ name: "alltoAll", args: [send, recv, count, type, comm, stream] }];

/**
 * The sends and receives of a collective that copies blocks. In step k rank r sends to r+k and receives from r−k, the order in
 * which NCCL itself serves peers.
 */
const pairwise: NcclStep = (part) => {
  const { call, size } = part;
  return ranksOf(size).flatMap((step) => [
    ...message(part, "send", (call.rank + step) % size),
    ...message(part, "recv", (call.rank - step + size) % size),
  ]);
};

function ranksOf(size: number): number[] {
  return Array.from({ length: size }, (_, rank) => rank);
}

/** The send to a peer, or the receive from it; none for an empty block. */
function message(part: NcclCallArgs, direction: "send" | "recv", peer: number): DataCall[] {
  const { call, type, comm, stream, size } = part;
  const { start, count } = exchangedBlock(call, direction, peer, size);
  if (count === 0) return [];
  const address = at(part[direction], call[direction], start);
  return [{ name: direction, args: [address, count, type, peer, comm, stream] }];
}

/** Some elements of a buffer. */
interface Block {
  readonly start: number;
  readonly count: number;
}

const empty: Block = { start: 0, count: 0 };

/** The elements that a rank sends to a peer, or receives from it, in a collective that copies blocks. */
function exchangedBlock(
  call: RankCall,
  direction: "send" | "recv",
  peer: number,
  size: number,
): Block {
  const { rank, root } = call;
  const { inBlocks, outBlocks } = specifications[call.collective as SpecifiedCollective];
  const [own, others] = direction === "send" ? [inBlocks, outBlocks] : [outBlocks, inBlocks];
  const blocks = own(size, rank, root);
  if (blocks === 0 || others(size, peer, root) === 0) return empty;
  // As many blocks as ranks are one for every rank; a single one is the rank's own.
  return blocks === size ? blockOf(call, direction, peer) : { start: 0, count: call.count };
}

/** A peer's block of a buffer: all have one length where there are no counts. */
function blockOf(call: RankCall, direction: "send" | "recv", peer: number): Block {
  const counts = call[`${direction}Counts` as const];
  const offsets = call[`${direction}Offsets` as const];
  if (counts === undefined) return { start: peer * call.count, count: call.count };
  return { start: offsets?.[peer] as number, count: counts[peer] as number };
}

/**
 * True if a copy replaces a call that NCCL would refuse. For one rank, NCCL has no kernels of multiplying float8 operators. An
 * average over one rank equals its contribution bit for bit and becomes a copy in stream order.
 */
export function isSingleRankCopy({ dtype, op }: RankCall, size: number): boolean {
  return size === 1 && op === "avg" && isFloat8(dtype);
}

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
  const { collective, rank } = call;
  if (!isSpecified(collective) || specifications[collective].reduces || native[collective])
    return new Set();
  const hasMessage = (peer: number): boolean =>
    exchangedBlock(call, "send", peer, size).count > 0 ||
    exchangedBlock(call, "recv", peer, size).count > 0;
  return new Set(ranksOf(size).filter((peer) => peer !== rank && hasMessage(peer)));
}
