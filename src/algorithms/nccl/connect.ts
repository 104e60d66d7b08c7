/**
 * Rings and trees over nodes, made of the graphs that NCCL's search finds on each of them.
 *
 * A ring runs through the nodes in their order, on each along the node's own ring. A tree has a chain of GPUs on each node, and
 * NCCL's double binary tree between nodes: half of the channels have tree A, the others tree B. The pattern of a node's graph
 * tells which GPUs of its chain carry the edges to other nodes. A GPU folds the value of its chain before those of other nodes.
 */
import type { Evidence } from "./rules.ts";
import {
  type ChannelPaths,
  type CpuVendor,
  plainTree,
  type SearchResult,
  type Topology,
  type Tree,
} from "./topology.ts";

/** Channels and figures of one graph of a node. */
export interface NodeGraph {
  /** GPUs of the node, counted from 0: a ring from the network's entry to its exit, or a chain from its root. */
  readonly channels: readonly (readonly number[])[];
  /** NCCL's number for the shape of a tree; that of a ring decides nothing. */
  readonly pattern: number;
  /** GB/s of one channel within the node, and between nodes. */
  readonly bandwidth: number;
  readonly interBandwidth: number;
  /** Microseconds that the network adds to a step. */
  readonly interLatency: number;
  /** True if NCCL takes LL128 over these links without force. */
  readonly ll128: boolean;
  readonly sameChannels: boolean;
  /** True if odd nodes exchange their even and odd rings, so that no ring crosses from one NIC to another (crossnic 2). */
  readonly alternates: boolean;
}

/** The graphs of a node. */
export interface NodeGraphs {
  readonly gpus: number;
  readonly ring: NodeGraph;
  readonly tree: NodeGraph;
}

/** NCCL's number for a tree whose first two GPUs share the edges between nodes: the parent and second child, and the first child. */
export const balancedTree = 1;

/** NCCL's number for a tree with both children of other nodes on its second GPU. */
const splitTree = 2;

/** The most channels of a graph: half of NCCL's limit, because they are doubled. */
export const maxGraphChannels = 32;

/** The topology of some nodes, whose ranks are numbered node after node. Equal nodes share their graphs. */
export function connected(
  nodes: readonly NodeGraphs[],
  facts: { readonly name: string; readonly cpu?: CpuVendor | undefined },
): Topology {
  const kinds = [...new Set(nodes)];
  const found = least(kinds, ({ ring, tree }) =>
    Math.min(ring.channels.length, tree.channels.length),
  );
  const sizes = nodes.map(({ gpus }) => gpus);
  const isJoined = nodes.length > 1;
  const ringSearch = searchOf(kinds, "ring", found, isJoined);
  return {
    ...facts,
    ranks: sizes.reduce((sum, gpus) => sum + gpus, 0),
    nodes: nodes.length,
    ...(kinds.some(({ gpus }) => gpus !== sizes[0]) && { nodeSizes: sizes }),
    evidence: evidenceOf(kinds, nodes.length),
    channels: channelsBetween(nodes, kinds, found, ringSearch),
    ringSearch,
    treeSearch: {
      ...searchOf(kinds, "tree", found, isJoined),
      pattern: -least(kinds, ({ tree }) => -tree.pattern),
    },
    sameChannels: kinds.every(({ ring }) => ring.sameChannels),
  };
}

/** The least value of a figure. */
function least<K>(kinds: readonly K[], figure: (kind: K) => number): number {
  return kinds.reduce((smallest, kind) => Math.min(smallest, figure(kind)), Infinity);
}

/** The worst figures of all nodes: NCCL takes those. */
function searchOf(
  kinds: readonly NodeGraphs[],
  kind: "ring" | "tree",
  channels: number,
  isJoined: boolean,
): SearchResult {
  const graphs = kinds.map((node) => node[kind]);
  const ll128 = graphs.every((graph) => graph.ll128);
  const bandwidth = least(graphs, (graph) => graph.bandwidth);
  if (!isJoined) return { channels, bandwidth, ll128 };
  return {
    channels,
    bandwidth,
    ll128,
    interBandwidth: least(graphs, (graph) => graph.interBandwidth),
    interLatency: graphs[0]?.interLatency ?? 0,
  };
}

/** GB/s of a channel within a node and between nodes, with sockets at 10 Gb/s. */
const sockets = { ring: [1.2, 1.2], tree: [2.4, 1.2] } as const;

/** Nodes with recorded results, all over such sockets: the channels of each, and the most nodes. */
const recorded = [
  { ring: "0", tree: "0", nodes: 32 },
  { ring: "0 1", tree: "0 1", nodes: 2 },
  { ring: "0 3 2 1", tree: "0 1 2 3", nodes: 2 },
] as const;

/** Results were recorded on one node, and with one network between nodes. */
function evidenceOf(kinds: readonly NodeGraphs[], nodes: number): Evidence {
  if (nodes === 1) return "measured";
  const isRecorded = kinds.every(({ ring, tree }) => {
    const [around, down] = [channelOver(ring, sockets.ring), channelOver(tree, sockets.tree)];
    return (
      ring.sameChannels &&
      recorded.some((each) => each.ring === around && each.tree === down && nodes <= each.nodes)
    );
  });
  return isRecorded ? "measured" : "source";
}

/** The GPUs of the only channel, in order; `undefined` for another network, or more channels. */
function channelOver(
  { channels, bandwidth, interBandwidth, interLatency, ll128 }: NodeGraph,
  [within, between]: readonly [number, number],
): string | undefined {
  const [channel, ...further] = channels;
  if (further.length > 0 || ll128 || interLatency !== 0) return undefined;
  return bandwidth === within && interBandwidth === between ? channel?.join(" ") : undefined;
}

/**
 * The channels of the search, doubled: first those with tree A. NCCL doubles few fast ones between nodes again. A plan takes
 * few paths, so each is made on first use.
 */
function channelsBetween(
  nodes: readonly NodeGraphs[],
  kinds: readonly NodeGraphs[],
  found: number,
  { bandwidth }: SearchResult,
): ChannelPaths[] {
  const between = once(() =>
    nodes.length === 1 ? ([binaryTree(1), binaryTree(1)] as const) : doubleTree(nodes.length),
  );
  // Equal channels share their paths, and with them the orders of folding.
  const rings = new Map<string, () => readonly number[]>();
  const trees = new Map<string, () => Tree>();
  const half = (which: 0 | 1): ChannelPaths[] =>
    Array.from({ length: found }, (_, channel): ChannelPaths => {
      const ringKey = kinds.map((kind) => `${[0, 1].map((i) => ringOf(kind, i, channel, found))}`);
      const treeKey = `${nodes.length === 1 ? 0 : which} ${kinds.map((kind) => chainOf(kind, channel)).join("/")}`;
      const ring = shared(rings, ringKey.join("/"), () =>
        joinedRing(nodes, (node, i) => ringOf(node, i, channel, found)),
      );
      const tree = shared(trees, treeKey, () => joinedTree(nodes, channel, between()[which]));
      return {
        get ring() {
          return ring();
        },
        get tree() {
          return tree();
        },
      };
    });
  const channels = [...half(0), ...half(1)];
  const isFew = nodes.length > 1 && bandwidth > 45 && channels.length < 16;
  return isFew ? [...channels, ...channels] : channels;
}

/** A value that is computed on first use. */
function once<T>(compute: () => T): () => T {
  let known: { readonly value: T } | undefined;
  return () => {
    known ??= { value: compute() };
    return known.value;
  };
}

/** The value of a key, which the first one computes. */
function shared<T>(known: Map<string, () => T>, key: string, compute: () => T): () => T {
  const value = known.get(key) ?? once(compute);
  known.set(key, value);
  return value;
}

/** The ring of a channel on one node. */
function ringOf(
  { ring }: NodeGraphs,
  node: number,
  channel: number,
  found: number,
): readonly number[] {
  const exchanged = ring.alternates && found % 2 === 0 && node % 2 === 1;
  return ring.channels[exchanged ? channel ^ 1 : channel] as readonly number[];
}

/** The chain of a channel on one node. */
function chainOf({ tree }: NodeGraphs, channel: number): readonly number[] {
  return tree.channels[channel] as readonly number[];
}

/** One ring through all nodes, from rank 0 on. */
function joinedRing(
  nodes: readonly NodeGraphs[],
  ringOn: (node: NodeGraphs, place: number) => readonly number[],
): readonly number[] {
  const ring: number[] = [];
  let base = 0;
  nodes.forEach((node, place) => {
    for (const gpu of ringOn(node, place)) ring.push(base + gpu);
    base += node.gpus;
  });
  const start = ring.indexOf(0);
  return start === 0 ? ring : [...ring.slice(start), ...ring.slice(0, start)];
}

/** The chains of all nodes as one tree; `between` is the tree over nodes. */
function joinedTree(nodes: readonly NodeGraphs[], channel: number, between: Tree): Tree {
  const bases: number[] = [];
  let ranks = 0;
  for (const { gpus } of nodes) {
    bases.push(ranks);
    ranks += gpus;
  }
  const head = (node: number): number =>
    (bases[node] as number) + (chainOf(nodes[node] as NodeGraphs, channel)[0] as number);
  const children: number[][] = new Array(ranks);
  nodes.forEach((node, place) => {
    const base = bases[place] as number;
    const chain = chainOf(node, channel);
    chain.forEach((gpu, at) => {
      const next = chain[at + 1];
      children[base + gpu] = next === undefined ? [] : [base + next];
    });
    const { pattern } = node.tree;
    const first = pattern === plainTree ? 0 : 1;
    const second = pattern === splitTree ? 1 : 0;
    (between.children[place] as readonly number[]).forEach((child, which) => {
      // The only child of the root is a second one.
      const at = which === 0 && place !== between.root ? first : second;
      (children[base + (chain[at] as number)] as number[]).push(head(child));
    });
  });
  return { root: head(between.root), children };
}

/**
 * NCCL's double binary tree over nodes 0 to n - 1: tree A and tree B.
 *
 * @internal
 */
export function doubleTree(nodes: number): readonly [Tree, Tree] {
  const treeA = binaryTree(nodes);
  const isEven = nodes % 2 === 0;
  // Tree B is the mirror of tree A, or tree A shifted by one node.
  const moved = (node: number): number => (isEven ? nodes - 1 - node : (node + 1) % nodes);
  const children: (readonly number[])[] = new Array(nodes);
  treeA.children.forEach((of, node) => {
    children[moved(node)] = of.map(moved);
  });
  return [treeA, { root: moved(treeA.root), children }];
}

/** Node 0 is the root; of a node with lowest bit b the children are b / 2 before and after it, as far as there are nodes. */
function binaryTree(nodes: number): Tree {
  const children = Array.from({ length: nodes }, (_, node): number[] => {
    if (node === 0) return nodes > 1 ? [2 ** (31 - Math.clz32(nodes - 1))] : [];
    const half = (node & -node) >> 1;
    if (half === 0) return [];
    let after = half;
    while (after > 0 && node + after >= nodes) after >>= 1;
    return after === 0 ? [node - half] : [node - half, node + after];
  });
  return { root: 0, children };
}
