/**
 * Results of NCCL's search on a machine: the facts that every plan starts from.
 *
 * They come from a preset, or from the graphs of nodes (`connect.ts`). A *channel* has a ring (from rank 0 along its
 * `next` pointers) and a tree, which is a chain on a single node. The figures of the search, before NCCL doubles the channels,
 * are used in the cost model only.
 */
import { UnsupportedError } from "../../api/errors.ts";
import { invalid, listText, textOf } from "../../api/option-kinds.ts";
import { assertArgument, assertInteger } from "../arguments.ts";
import type { Evidence, ResolvedSettings } from "./rules.ts";

/** A tree of ranks. */
export interface Tree {
  readonly root: number;
  /** Children of each rank, in the order in which their values are folded. */
  readonly children: readonly (readonly number[])[];
}

/** Ring and tree of one channel, in ranks. */
export interface ChannelPaths {
  /** `ring[0]` is rank 0, `ring[i + 1]` the next of `ring[i]`. */
  readonly ring: readonly number[];
  readonly tree: Tree;
}

/** The result of the search for one kind of graph. */
export interface SearchResult {
  readonly channels: number;
  /** GB/s of one channel between GPUs of a node. */
  readonly bandwidth: number;
  /** True if NCCL takes LL128 without force: over NVLink, and between nodes over links that keep its stores whole. */
  readonly ll128: boolean;
  /** GB/s of one channel between nodes; that within a node when left out. */
  readonly interBandwidth?: number | undefined;
  /** Microseconds that the network adds to a step between nodes; none when left out. */
  readonly interLatency?: number | undefined;
  /** NCCL's number for the shape of the graph; a balanced tree when left out. */
  readonly pattern?: number | undefined;
}

/** Vendors of processors that NCCL's model of a network distinguishes; it takes all others for Intel. */
export type CpuVendor = "intel" | "amd";

/** The facts about nodes and the ranks on them. */
export interface Topology {
  readonly name: string;
  readonly ranks: number;
  /** Nodes that the ranks are spread over, one after the other. */
  readonly nodes: number;
  /** Ranks on each node; equal when left out. */
  readonly nodeSizes?: readonly number[] | undefined;
  /** The nodes' processors, which decide between nodes only; Intel's when left out. */
  readonly cpu?: CpuVendor | undefined;
  /** That for plans on this machine. */
  readonly evidence: Evidence;
  readonly channels: readonly ChannelPaths[];
  readonly ringSearch: SearchResult;
  readonly treeSearch: SearchResult;
  /** True if all channels of the ring graph are the same; it lowers the modelled latency of rooted collectives. */
  readonly sameChannels: boolean;
}

/** NCCL's number for a tree with all edges of a node on one GPU. */
export const plainTree = 3;

/** A chain of ranks, from the leaf to the root, as a tree. */
export function chainTree(chain: readonly number[]): Tree {
  const children: number[][] = chain.map(() => []);
  chain.forEach((rank, place) => {
    const child = chain[place - 1];
    if (child !== undefined) children[rank] = [child];
  });
  return { root: chain.at(-1) ?? 0, children };
}

/** Ranks from the root down, level by level, each with its distance from the root. */
export function levelsOf({
  root,
  children,
}: Tree): { readonly rank: number; readonly depth: number }[] {
  const found = [{ rank: root, depth: 0 }];
  for (let at = 0; at < found.length; at++) {
    const { rank, depth } = found[at] as { rank: number; depth: number };
    for (const child of children[rank] ?? []) found.push({ rank: child, depth: depth + 1 });
  }
  return found;
}

/** GPUs of the preset, its channels, and the channels of the search before NCCL doubles them. */
const presetGpus = 8;
const presetChannels = 24;
const searchChannels = 12;

/** The first `ranks` GPUs of eight H200 behind NVSwitch, GPU r as rank r. */
export function h200x8(ranks: number): Topology {
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > presetGpus) {
    throw new UnsupportedError(
      {
        headline: `topology h200x8: found ${textOf(ranks)} ranks, has ${presetGpus} GPUs`,
        hint: "a rank takes one GPU; use a topology with more of them, or none",
      },
      { field: "topology" },
    );
  }
  const ring = Array.from({ length: ranks }, (_, rank) => rank);
  const trees = Array.from({ length: searchChannels }, (_, channel) =>
    chainTree(presetChain(ranks, channel)),
  );
  return {
    name: "h200x8",
    ranks,
    nodes: 1,
    evidence: "measured",
    channels: Array.from({ length: presetChannels }, (_, channel) => ({
      ring,
      tree: trees[channel % searchChannels] as Tree,
    })),
    ringSearch: { channels: searchChannels, bandwidth: 30, ll128: true },
    treeSearch: {
      channels: searchChannels,
      bandwidth: ranks === 2 ? 60 : ranks === 3 ? 40 : 30,
      ll128: true,
    },
    sameChannels: true,
  };
}

/** Two and three GPUs have links to spare, so that the search finds chains with other roots. */
function presetChain(ranks: number, channel: number): readonly number[] {
  if (ranks === 2 && channel >= 6) return [0, 1];
  if (ranks === 3 && channel >= 9) return [1, 0, 2];
  if (ranks === 3 && channel >= 6) return [0, 2, 1];
  return Array.from({ length: ranks }, (_, place) => ranks - 1 - place);
}

/** The channels of a communicator: the first ones up to the limit; beyond their number they repeat from the first. */
export function channelsOf(
  { channels }: Topology,
  { minChannels, maxChannels }: ResolvedSettings,
): readonly ChannelPaths[] {
  const channelCount = Math.max(minChannels, Math.min(maxChannels, channels.length));
  return Array.from(
    { length: channelCount },
    (_, c) => channels[c % channels.length] as ChannelPaths,
  );
}

/** The rank at ring position `i` modulo the length. */
export function ringAt(ring: readonly number[], i: number): number {
  return ring[((i % ring.length) + ring.length) % ring.length] as number;
}

/** True for all numbers from 0 on, each once, in any order. */
export function isRing(order: readonly number[]): boolean {
  const seen = new Uint8Array(order.length);
  for (const rank of order) {
    if (typeof rank !== "number" || seen[rank] !== 0) return false;
    seen[rank] = 1;
  }
  return order.length > 0;
}

/** The number of ranks on rings and trees that were checked: plans share topologies, and channels share their paths. */
const ranksOn = new WeakMap<object, number>();

/** Needs the topology of a machine. */
export function assertTopology(subject: string, found: unknown): void {
  const { ranks, nodes, cpu = "intel", channels, ...figures } = Object(found) as Topology;
  const is = Array.isArray(channels) && channels.length > 0;
  assertArgument(is, subject, "topology", found, "that of a machine, such as h200x8(8)");
  assertInteger(subject, "topology.ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
  assertInteger(subject, "topology.nodes", nodes, 1, ranks);
  const isVendor = cpu === "intel" || cpu === "amd";
  assertArgument(isVendor, subject, "topology.cpu", cpu, '"intel" or "amd"');
  for (const name of ["ringSearch", "treeSearch"] as const) {
    const search = Object(figures[name]) as SearchResult;
    const isSearch = [search.channels, search.bandwidth].every(
      (each) => Number.isFinite(each) && each > 0,
    );
    assertArgument(isSearch, subject, `topology.${name}`, figures[name], "channels and bandwidth");
  }
  for (const [at, channel] of (channels as readonly unknown[]).entries()) {
    const { ring, tree } = Object(channel) as Partial<ChannelPaths>;
    for (const [name, path] of [["ring", ring] as const, ["tree", tree] as const]) {
      if (path !== undefined && ranksOn.get(path) === ranks) continue;
      const order = name === "ring" ? [path].flat() : [tree?.root, ...[tree?.children].flat(2)];
      const isWhole = order.length === ranks && isRing(order as readonly number[]);
      if (isWhole && typeof path === "object") {
        ranksOn.set(path, ranks);
        continue;
      }
      const field = `topology.channels[${at}].${name}`;
      throw invalid(subject, field, listText(order), `every rank of 0..${ranks - 1} once`);
    }
  }
}

/**
 * The same machine with another ring in every channel, as from a graph file with permuted rings. `order` is the ranks in the
 * order of their `next` pointers.
 *
 * @throws InvalidArgumentError for an order without all ranks, and UnsupportedError for several hosts.
 */
export function withRing(topology: Topology, order: readonly number[]): Topology {
  assertTopology("withRing", topology);
  if (topology.nodes > 1) {
    throw new UnsupportedError(
      {
        headline: `plan.rings: found ranks in order, the rings of ${topology.nodes} hosts are those within each of them`,
        hint: "NCCL joins hosts in their order: pass { xml } with the graph file of a host",
      },
      { field: "plan.rings" },
    );
  }
  const { ranks } = topology;
  if (!Array.isArray(order) || order.length !== ranks || !isRing(order)) {
    const found = Array.isArray(order) ? listText(order) : textOf(order);
    throw invalid("withRing", "order", found, `every rank of 0..${ranks - 1} once`);
  }
  const start = order.indexOf(0);
  const ring = order.map((_, i) => ringAt(order, start + i));
  return {
    ...topology,
    name: `${topology.name} with rings ${ring.join("-")}`,
    channels: topology.channels.map(({ tree }) => ({ ring, tree })),
  };
}
