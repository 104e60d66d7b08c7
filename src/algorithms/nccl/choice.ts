/**
 * NCCL's choice for a call on one node: algorithm and protocol by the least predicted time, and the number of channels.
 *
 * The cost table has latency and bandwidth of a collective by algorithm and protocol. It must agree with NCCL to the last bit
 * near a switch point. Values that NCCL keeps in a float are rounded to float32 here, values that it computes in a double are
 * not. Constants are those of Hopper over NVLink.
 */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import {
  algorithms,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  protocols,
} from "./rules.ts";
import type { Topology } from "./topology.ts";

/** Algorithm and protocol of a call. */
export interface Choice {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
}

/** The values of NCCL_ALGO and NCCL_PROTO; a field that is left out is NCCL's choice. */
export interface Forced {
  readonly algorithm?: NcclAlgorithm | undefined;
  readonly protocol?: NcclProtocol | undefined;
}

/** The facts of a call that decide algorithm and protocol: neither channel limits nor buffer sizes do. */
interface ChoiceQuestion {
  readonly collective: NcclCollective;
  readonly topology: Topology;
  readonly dtype: DType;
  /** Bytes as the cost model counts them: `modelBytes`. */
  readonly size: number;
  readonly forced?: Forced | undefined;
}

/** NCCL's choice for a call that is alone in its group. Throws for an impossible demand, as NCCL does since 2.24. */
export function choose(question: ChoiceQuestion): Choice {
  const { collective, topology, size, forced = {} } = question;
  let best: Choice | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const algorithm of algorithms) {
    if (forced.algorithm !== undefined && forced.algorithm !== algorithm) continue;
    for (const protocol of protocols) {
      if (forced.protocol !== undefined && forced.protocol !== protocol) continue;
      const entry = costEntry(collective, algorithm, protocol, topology);
      const time = predictedTime(entry, algorithm, protocol, size) * penalty(question, algorithm);
      if (time < 0 || time >= least) continue;
      least = time;
      best = { algorithm, protocol };
    }
  }
  if (best !== undefined) return best;
  throw new UnsupportedError(
    {
      headline: `${collective}: NCCL has no ${forced.algorithm} algorithm for it`,
      hint: "force Tree for all-reduces only, as in NCCL_ALGO=allreduce:tree",
    },
    { field: "forced.algorithm", collective },
  );
}

/** NCCL avoids rings of 1-byte floats over more than 8 ranks, which lose too much precision. */
function penalty({ dtype, topology }: ChoiceQuestion, algorithm: NcclAlgorithm): number {
  const { bytes, kind } = dtypeInfo[dtype];
  const narrow = bytes === 1 && kind === "float";
  return algorithm === "Ring" && narrow && topology.ranks > 8 ? 1024 : 1;
}

/** The facts of a call that decide its channels. */
interface BudgetQuestion {
  readonly collective: NcclCollective;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly topology: Topology;
  /** Bytes of the call's own count. */
  readonly bytes: number;
  /** Channels of the communicator. */
  readonly channels: number;
}

/** Channels that a call may use, NCCL's `nc`: one per `bytesPerChannel`, at least one, at most all. */
export function channelBudget(question: BudgetQuestion): number {
  const { collective, algorithm, protocol, topology, bytes, channels } = question;
  const { ranks } = topology;
  const bytesPerChannel =
    maxThreads(algorithm, protocol, topology) * threadThreshold(algorithm, protocol, ranks);
  const channelsForBytes = Math.floor(modelBytes(collective, ranks, bytes) / bytesPerChannel);
  return Math.max(1, Math.min(channels, channelsForBytes));
}

/** Threads of a block. */
function maxThreads(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  { ringSearch }: Topology,
): number {
  if (protocol === "LL128") return 640;
  const slow = ringSearch.bandwidth * ringSearch.channels <= 12;
  return algorithm === "Ring" && protocol === "Simple" && slow ? 256 : 512;
}

/** Bytes that keep one thread busy. */
function threadThreshold(algorithm: NcclAlgorithm, protocol: NcclProtocol, ranks: number): number {
  if (protocol === "Simple") return 64;
  return algorithm === "Ring" && protocol === "LL" ? 8 * ranks : 8;
}

/** Bytes that the cost model and the channel budget count for a call. */
export function modelBytes(collective: NcclCollective, ranks: number, bytes: number): number {
  const blocks = collective === "allGather" || collective === "reduceScatter" ? ranks : 1;
  return bytes * blocks;
}

/** One entry of the cost table. */
interface CostEntry {
  /** Microseconds before the first byte arrives. */
  readonly latency: number;
  /** GB/s of the call's own bytes; 0 where the entry is not available. */
  readonly bandwidth: number;
}

type ByProtocol = { readonly [P in NcclProtocol]: number };
type ByAlgorithm = { readonly [A in NcclAlgorithm]: ByProtocol };

const baseLatency: ByAlgorithm = {
  Tree: { LL: 6.8, LL128: 14, Simple: 8.4 },
  Ring: { LL: 6.6, LL128: 14, Simple: 8.4 },
};

const hopLatency: ByAlgorithm = {
  Tree: { LL: 0.6, LL128: 1.25, Simple: 4 },
  Ring: { LL: 0.6, LL128: 1.9, Simple: 3.4 },
};

/** GB/s: the limit of LL, and the limits of one channel otherwise. */
const maxLl = 141;
const maxRingLl128 = 36.7;
const maxTreeLl128 = 36.7;
const maxTree = 38.7;

/** The pattern of a tree with all edges on its first GPU. */
const plainTree = 3;

/** Fraction of its bandwidth that a tree reaches, by size: 64 B first, then each power of two. */
const treeCorrection: { readonly [P in NcclProtocol]: readonly number[] } = {
  LL: [
    1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1,
    1,
  ],
  LL128: [
    1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9,
    1, 1,
  ],
  Simple: [
    0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7,
    0.7, 0.8, 0.9, 0.9,
  ],
};

/**
 * The entry of an algorithm and protocol; its bandwidth is 0 where the algorithm does not serve the collective.
 *
 * @internal
 */
export function costEntry(
  collective: NcclCollective,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  topology: Topology,
): CostEntry {
  if (algorithm === "Tree" && collective !== "allReduce") return { latency: 0, bandwidth: 0 };
  const { ranks } = topology;
  const hops = ringHops(collective, ranks);
  const bus = busBandwidth(algorithm, protocol, topology);
  const ratio = algorithm === "Tree" ? 0.5 : Math.fround(ranks / hops);
  const latency = latencyOf(collective, algorithm, protocol, topology);
  return { latency, bandwidth: Math.fround(bus * ratio) };
}

/** Predicted microseconds for a single call of `bytes` (`modelBytes`); negative when not available. */
function predictedTime(
  { latency, bandwidth }: CostEntry,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  bytes: number,
): number {
  if (bandwidth === 0) return -1;
  let reached = bandwidth;
  if (algorithm === "Tree" && bytes >= 64) {
    const factor = treeCorrection[protocol][Math.floor(Math.log2(Math.floor(bytes / 64)))];
    if (factor !== undefined) reached = Math.fround(reached * Math.fround(factor));
  }
  const transfer = Math.fround(Math.fround(bytes) / Math.fround(1000 * reached));
  return Math.fround(latency + transfer);
}

function busBandwidth(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  { ringSearch, treeSearch }: Topology,
): number {
  const { channels, bandwidth } = algorithm === "Ring" ? ringSearch : treeSearch;
  const found = Math.fround(channels * Math.fround(bandwidth));
  if (algorithm === "Ring") {
    if (protocol === "LL") return Math.fround(Math.min(maxLl, found * 0.5));
    if (protocol === "LL128") return Math.fround(Math.min(found * 0.92, channels * maxRingLl128));
    return found;
  }
  const bandwidthOfTree = treeBandwidth(protocol, found, channels);
  const plain = treeSearch.pattern === plainTree;
  return plain ? Math.fround(bandwidthOfTree * 0.85) : bandwidthOfTree;
}

function treeBandwidth(protocol: NcclProtocol, found: number, channels: number): number {
  const tree = Math.fround(Math.min(found * 0.92, channels * maxTree));
  if (protocol === "LL") return Math.fround(Math.min(tree / 3.8, maxLl));
  if (protocol === "LL128") return Math.fround(Math.min(tree * (7 / 9), channels * maxTreeLl128));
  return tree;
}

function latencyOf(
  collective: NcclCollective,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  { ranks, sameChannels }: Topology,
): number {
  const base = Math.fround(baseLatency[algorithm][protocol]);
  const hop = Math.fround(hopLatency[algorithm][protocol]);
  if (algorithm === "Tree")
    return Math.fround(base + Math.fround(2 * Math.fround((ranks - 1) * hop)));
  if (collective !== "reduce" && collective !== "broadcast") {
    return Math.fround(base + Math.fround(ringHops(collective, ranks) * hop));
  }
  if (sameChannels) return Math.fround(base + hop);
  const chunkHop = protocol === "Simple" ? Math.fround(hopLatency.Tree.Simple) : hop;
  return Math.fround(base + Math.fround(ranks * chunkHop));
}

/** Sequential steps of a ring. */
function ringHops(collective: NcclCollective, ranks: number): number {
  if (collective === "allReduce") return 2 * (ranks - 1);
  return collective === "reduce" || collective === "broadcast" ? ranks : ranks - 1;
}
