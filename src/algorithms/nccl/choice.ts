/**
 * NCCL's choice for a call: algorithm and protocol by the least predicted time, and the number of channels.
 *
 * The cost table has latency and bandwidth of a collective by algorithm and protocol. It must agree with NCCL to the last bit
 * near a switch point. Values that NCCL keeps in a float are rounded to float32 here, values that it computes in a double are
 * not. Constants are those of Hopper with NVLink on a node.
 */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import {
  algorithmServes,
  algorithms,
  blocksOf,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  protocols,
  type ResolvedSettings,
} from "./rules.ts";
import { plainTree, type SearchResult, type Topology } from "./topology.ts";

/** Algorithm and protocol of a call. */
export interface Choice {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
}

/** The values of NCCL_ALGO and NCCL_PROTO, one or several that NCCL may choose from; left out: all. */
export interface Forced {
  readonly algorithm?: NcclAlgorithm | readonly NcclAlgorithm[] | undefined;
  readonly protocol?: NcclProtocol | readonly NcclProtocol[] | undefined;
}

/** Needs names of algorithms and protocols: a call that takes a symmetric kernel reads neither. */
export function assertForced(subject: string, { algorithm, protocol }: Forced): void {
  assertNames(subject, "forced.algorithm", algorithm, algorithms);
  assertNames(subject, "forced.protocol", protocol, protocols);
}

function assertNames(
  subject: string,
  field: string,
  found: unknown,
  names: readonly string[],
): void {
  if (found === undefined) return;
  const wanted: readonly unknown[] = Array.isArray(found) ? found : [found];
  const isName = (each: unknown): boolean => names.some((name) => name === each);
  const wrong = wanted.findIndex((each) => !isName(each));
  if (wanted.length > 0 && wrong < 0) return;
  const value = wanted.length === 0 ? "an empty list" : textOf(wanted[wrong]);
  throw invalid(subject, field, value, `one or several of ${names.join(", ")}`);
}

/** The facts of a call that decide algorithm and protocol; buffer sizes do not. */
export interface ChoiceQuestion {
  readonly collective: NcclCollective;
  readonly topology: Topology;
  readonly dtype: DType;
  /** True for an operator that multiplies contributions, or divides their sum. */
  readonly scales?: boolean | undefined;
  /** Channels of the communicator. */
  readonly channels: number;
  /** Bytes as the cost model counts them: `modelBytes`. */
  readonly size: number;
  readonly forced?: Forced | undefined;
}

/** NCCL's choice for a call that is alone in its group. Throws for an impossible demand, as NCCL does since 2.24. */
export function choose(question: ChoiceQuestion): Choice {
  let best: PricedChoice | undefined;
  for (const entry of pricedChoices(question)) {
    if (best === undefined || entry.time < best.time) best = entry;
  }
  if (best !== undefined) return { algorithm: best.algorithm, protocol: best.protocol };
  const { collective, topology, forced = {} } = question;
  throw new UnsupportedError(
    {
      headline: `${collective}: NCCL has no ${demandText(forced)} for it on ${topology.name}`,
      hint: "Tree serves all-reduces alone, PAT plain reduce-scatters and all-gathers between hosts, by Simple",
    },
    { field: "forced.algorithm", collective },
  );
}

/** An algorithm and protocol with its predicted time, in microseconds. */
export interface PricedChoice extends Choice {
  readonly time: number;
}

/**
 * The algorithms and protocols that serve a call, in NCCL's order, with NCCL's predicted times. No time falls with a growing
 * size up to `risingUntil`.
 */
export function pricedChoices(question: ChoiceQuestion): PricedChoice[] {
  const { collective, topology, size, scales = false, forced = {} } = question;
  const found: PricedChoice[] = [];
  for (const algorithm of algorithms) {
    if (!allows(forced.algorithm, algorithm)) continue;
    // PAT has no kernels of reduce-scatters that scale.
    if (algorithm === "PAT" && scales && collective === "reduceScatter") continue;
    for (const protocol of protocols) {
      if (!allows(forced.protocol, protocol)) continue;
      const isFree = protocol === "LL128" && forced.protocol === undefined;
      if (isFree && !searchOf(algorithm, topology).ll128) continue;
      const entry = costEntry(collective, algorithm, protocol, topology);
      const cost = isPlateau(question, algorithm, protocol) ? raised(entry) : entry;
      const time = predictedTime(cost, algorithm, protocol, size) * penalty(question, algorithm);
      if (time >= 0) found.push({ algorithm, protocol, time });
    }
  }
  return found;
}

function allows<T extends string>(wanted: T | readonly T[] | undefined, word: T): boolean {
  return (
    wanted === undefined || (typeof wanted === "string" ? wanted === word : wanted.includes(word))
  );
}

function demandText({ algorithm, protocol }: Forced): string {
  const over = protocol === undefined ? "" : ` over ${listText(protocol)}`;
  return algorithm === undefined ? `algorithm${over}` : `${listText(algorithm)} algorithm${over}`;
}

function listText(wanted: string | readonly string[]): string {
  return typeof wanted === "string" ? wanted : wanted.join(" or ");
}

/** True for a ring all-reduce between nodes of so many bytes that its steps take longer. */
function isPlateau(
  { collective, topology, size, channels }: ChoiceQuestion,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
): boolean {
  if (topology.nodes === 1 || collective !== "allReduce") return false;
  if (algorithm !== "Ring" || protocol !== "Simple") return false;
  return Math.floor(size / (channels * topology.ranks)) >= 64;
}

function raised({ latency, bandwidth }: CostEntry): CostEntry {
  return { latency: Math.fround(latency * 1.4), bandwidth };
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
  /** NCCL_NTHREADS and NCCL_LL128_NTHREADS. */
  readonly threads?: Pick<ResolvedSettings, "threads" | "ll128Threads">;
}

/** Channels that a call may use, NCCL's `nc`: one per `bytesPerChannel`, at least one, at most all. */
export function channelBudget(question: BudgetQuestion): number {
  const { collective, algorithm, protocol, topology, bytes, channels } = question;
  const { ranks } = topology;
  const bytesPerChannel = blockThreads(question) * threadThreshold(algorithm, protocol, ranks);
  const channelsForBytes = Math.floor(modelBytes(collective, ranks, bytes) / bytesPerChannel);
  return Math.max(1, Math.min(channels, channelsForBytes));
}

/** Threads of a block, which the budget of channels keeps busy. */
export function blockThreads({
  algorithm,
  protocol,
  topology,
  threads: wanted,
}: Pick<BudgetQuestion, "algorithm" | "protocol" | "topology" | "threads">): number {
  const { ll128Threads, threads } = wanted ?? { ll128Threads: 0, threads: 0 };
  // No number of bytes keeps PAT from taking all channels.
  if (algorithm === "PAT") return 0;
  if (protocol === "LL128") return threadsOf(ll128Threads, 160, 640, 640);
  const { bandwidth, channels } = topology.ringSearch;
  const slow = algorithm === "Ring" && protocol === "Simple" && bandwidth * channels <= 12;
  return threadsOf(threads, 64, 512, slow ? 256 : 512);
}

/** NCCL takes the maximum for a number that is no multiple of a warp; 0 and less is its default. */
function threadsOf(wanted: number, least: number, most: number, usual: number): number {
  if (wanted <= 0) return usual;
  return wanted % 32 === 0 ? Math.min(most, Math.max(least, wanted)) : most;
}

/** Bytes that keep one thread busy. */
export function threadThreshold(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  ranks: number,
): number {
  if (protocol === "Simple") return 64;
  return algorithm === "Ring" && protocol === "LL" ? 8 * ranks : 8;
}

/** Bytes that the cost model and the channel budget count for a call. */
export function modelBytes(collective: NcclCollective, ranks: number, bytes: number): number {
  return bytes * blocksOf(collective, ranks);
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
  PAT: { LL: 8, LL128: 8, Simple: 8 },
};

/** A step over NVLink. */
const linkLatency: ByAlgorithm = {
  Tree: { LL: 0.6, LL128: 1.25, Simple: 4 },
  Ring: { LL: 0.6, LL128: 1.9, Simple: 3.4 },
  PAT: { LL: 0, LL128: 0, Simple: 4 },
};

/** A step between nodes. */
const networkLatency: ByAlgorithm = {
  Tree: { LL: 5, LL128: 8.5, Simple: 14 },
  Ring: { LL: 2.7, LL128: 4, Simple: 14 },
  PAT: { LL: 0, LL128: 0, Simple: 14 },
};

/** GB/s on one, on two, and on more nodes: for all channels over LL, where the CPUs limit it between nodes, else for one. */
const maxLl = { intel: [141, 39, 20.4], amd: [141, 22.5, 19] } as const;
const maxRingLl128 = [36.7, 36.7, 36.7] as const;
const maxTreeLl128 = [36.7, 36.7, 29] as const;
const maxTree = [38.7, 41.4, 36] as const;

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

/** The last size from `size` on before the correction of a tree changes: up to it no entry's time falls. */
export function risingUntil(size: number): number {
  if (size < 64) return 63;
  const step = Math.floor(Math.log2(Math.floor(size / 64)));
  return step < treeCorrection.LL.length ? 64 * 2 ** (step + 1) - 1 : Number.POSITIVE_INFINITY;
}

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
  const { ranks, nodes } = topology;
  const absent = { latency: 0, bandwidth: 0 };
  if (!algorithmServes(algorithm, collective)) return absent;
  if (algorithm === "PAT" && (protocol !== "Simple" || nodes < ranks)) return absent;
  const bus = busBandwidth(algorithm, protocol, topology);
  const latency = latencyOf(collective, algorithm, protocol, topology);
  if (algorithm === "PAT") return { latency, bandwidth: bus };
  const ratio = algorithm === "Tree" ? 0.5 : Math.fround(ranks / ringHops(collective, ranks));
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

/** The search whose figures an algorithm takes; PAT takes those of the tree. */
export function searchOf(
  algorithm: NcclAlgorithm,
  { ringSearch, treeSearch }: Pick<Topology, "ringSearch" | "treeSearch">,
): SearchResult {
  return algorithm === "Ring" ? ringSearch : treeSearch;
}

function busBandwidth(
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  topology: Topology,
): number {
  const { nodes, cpu = "intel" } = topology;
  const search = searchOf(algorithm, topology);
  const { channels, bandwidth, interBandwidth = bandwidth } = search;
  const found = Math.fround(channels * Math.fround(nodes <= 2 ? bandwidth : interBandwidth));
  if (algorithm === "PAT") return Math.fround(found * 0.75);
  const size = nodes <= 2 ? ((nodes - 1) as 0 | 1) : 2;
  if (algorithm === "Ring") {
    if (protocol === "LL") return Math.fround(Math.min(maxLl[cpu][size], found * 0.5));
    if (protocol === "LL128")
      return Math.fround(Math.min(found * 0.92, channels * maxRingLl128[size]));
    return found;
  }
  const tree = Math.fround(Math.min(found * 0.92, channels * maxTree[size]));
  const reached = overProtocol(tree, protocol, channels, maxLl[cpu][size], size);
  return search.pattern === plainTree ? Math.fround(reached * 0.85) : reached;
}

/** Bandwidth of a tree over a protocol; `mostLl` is the limit of LL, `size` that of the tables. */
function overProtocol(
  tree: number,
  protocol: NcclProtocol,
  channels: number,
  mostLl: number,
  size: 0 | 1 | 2,
): number {
  if (protocol === "Simple") return tree;
  if (protocol === "LL") return Math.fround(Math.min(tree / 3.8, mostLl));
  const carried = size === 0 ? 7 / 9 : 120 / 128;
  return Math.fround(Math.min(tree * carried, channels * maxTreeLl128[size]));
}

/** Microseconds that a step of a ring within a node takes at least if there are several, by vendor of their CPUs. */
const networkOverhead = { intel: 1, amd: 2 } as const;

function latencyOf(
  collective: NcclCollective,
  algorithm: NcclAlgorithm,
  protocol: NcclProtocol,
  topology: Topology,
): number {
  const { ranks, nodes } = topology;
  const base = Math.fround(baseLatency[algorithm][protocol]);
  const link = Math.fround(linkLatency[algorithm][protocol]);
  const between = networkStep(algorithm, protocol, topology);
  const levels = Math.floor(Math.log2(nodes));
  if (algorithm === "PAT") return Math.fround(base + (levels * (between / 3.5) + ranks * 2.8));
  if (algorithm === "Tree") {
    const within = Math.fround((Math.floor(ranks / nodes) - 1) * link);
    const hops = Math.fround(within + Math.fround(levels * between));
    return Math.fround(base + Math.fround(2 * hops));
  }
  if (collective === "reduce" || collective === "broadcast") {
    return Math.fround(base + rootedLatency(protocol, topology));
  }
  const steps = ringHops(collective, ranks);
  const across = (collective === "allReduce" ? 2 : 1) * (nodes - 1);
  const overhead =
    nodes === 1 ? 0 : networkOverhead[topology.cpu ?? "intel"] * (protocol === "Simple" ? 3 : 1);
  const within = Math.fround((steps - across) * Math.max(link, overhead));
  return Math.fround(base + Math.fround(within + Math.fround(across * between)));
}

/** A step between nodes. */
function networkStep(algorithm: NcclAlgorithm, protocol: NcclProtocol, topology: Topology): number {
  const { ranks, nodes } = topology;
  const { interLatency = 0 } = searchOf(algorithm, topology);
  // Ranks without a neighbour on their node wait for the network of a tree, on a ring too.
  const waiting = nodes === ranks ? networkLatency.Tree : networkLatency[algorithm];
  const step = Math.fround(Math.fround(waiting[protocol]) + Math.fround(interLatency));
  // Simple flushes what it received.
  return protocol === "Simple" ? Math.fround(step + Math.fround(interLatency)) : step;
}

function rootedLatency(protocol: NcclProtocol, { ranks, nodes, sameChannels }: Topology): number {
  const step = nodes === 1 ? linkLatency : networkLatency;
  const hop = Math.fround(step.Ring[protocol]);
  if (sameChannels) return hop;
  const chunkHop = protocol === "Simple" ? Math.fround(step.Tree.Simple) : hop;
  return Math.fround(ranks * chunkHop);
}

/** Sequential steps of a ring. */
function ringHops(collective: NcclCollective, ranks: number): number {
  if (collective === "allReduce") return 2 * (ranks - 1);
  return collective === "reduce" || collective === "broadcast" ? ranks : ranks - 1;
}
