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
  ringAt,
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

/** The topology of some nodes, whose ranks are numbered node after node. */
export function connected(
  nodes: readonly NodeGraphs[],
  facts: { readonly name: string; readonly cpu?: CpuVendor | undefined },
): Topology {
  const found = Math.min(
    ...nodesOnce(nodes).map(({ ring, tree }) =>
      Math.min(ring.channels.length, tree.channels.length),
    ),
  );
  const sizes = nodes.map(({ gpus }) => gpus);
  const ringSearch = searchOfNodes(nodes, found, "ring");
  return {
    ...facts,
    ranks: sizes.reduce((sum, gpus) => sum + gpus, 0),
    nodes: nodes.length,
    ...(sizes.some((gpus) => gpus !== sizes[0]) && { nodeSizes: sizes }),
    evidence: evidenceOf(nodes),
    channels: channelsBetween(nodes, found, ringSearch),
    ringSearch,
    treeSearch: {
      ...searchOfNodes(nodes, found, "tree"),
      pattern: Math.max(...nodesOnce(nodes).map(({ tree }) => tree.pattern)),
    },
    sameChannels: nodes.every(({ ring }) => ring.sameChannels),
  };
}

/** The different graphs among those of all nodes. */
function nodesOnce(nodes: readonly NodeGraphs[]): NodeGraphs[] {
  return [...new Set(nodes)];
}

/** The worst figures of all nodes: NCCL takes those. */
function searchOfNodes(
  nodes: readonly NodeGraphs[],
  channels: number,
  kind: "ring" | "tree",
): SearchResult {
  const graphs = nodesOnce(nodes).map((node) => node[kind]);
  const least = (figure: (graph: NodeGraph) => number): number => Math.min(...graphs.map(figure));
  const ll128 = graphs.every((graph) => graph.ll128);
  const bandwidth = least((graph) => graph.bandwidth);
  if (nodes.length === 1) return { channels, bandwidth, ll128 };
  return {
    channels,
    bandwidth,
    ll128,
    interBandwidth: least((graph) => graph.interBandwidth),
    interLatency: graphs[0]?.interLatency ?? 0,
  };
}

/** Nodes with recorded results: up to this number, each of one GPU with sockets at 10 Gb/s. */
const recorded = { nodes: 32, ring: [1.2, 1.2], tree: [2.4, 1.2] } as const;

/** Results were recorded on one node, and with one network between nodes of one GPU. */
function evidenceOf(nodes: readonly NodeGraphs[]): Evidence {
  if (nodes.length === 1) return "measured";
  if (nodes.length > recorded.nodes) return "source";
  const isRecorded = nodesOnce(nodes).every(
    ({ gpus, ring, tree }) =>
      gpus === 1 && has(ring, recorded.ring) && has(tree, recorded.tree) && ring.sameChannels,
  );
  return isRecorded ? "measured" : "source";
}

function has(graph: NodeGraph, [within, between]: readonly [number, number]): boolean {
  const { channels, bandwidth, interBandwidth, interLatency, ll128 } = graph;
  if (channels.length !== 1 || ll128 || interLatency !== 0) return false;
  return bandwidth === within && interBandwidth === between;
}

/** The channels of the search, doubled: first those with tree A. NCCL doubles few fast ones between nodes again. */
function channelsBetween(
  nodes: readonly NodeGraphs[],
  found: number,
  { bandwidth }: SearchResult,
): ChannelPaths[] {
  const everyNode = nodesOnce(nodes);
  const rings = new Map<string, readonly number[]>();
  const trees = new Map<string, Tree>();
  const halves = nodes.length === 1 ? [binaryTree(1)] : doubleTree(nodes.length);
  const paths = halves.map((between, half) =>
    Array.from({ length: found }, (_, channel): ChannelPaths => {
      const ringOn = (node: NodeGraphs, i: number): readonly number[] =>
        ringOf(node, i, channel, found);
      const chainOn = ({ tree }: NodeGraphs): readonly number[] =>
        tree.channels[channel] as readonly number[];
      // Equal channels share their paths, and with them the orders of folding.
      const ringKey = everyNode.map((node) => `${ringOn(node, 0)} ${ringOn(node, 1)}`).join("/");
      const treeKey = `${half} ${everyNode.map(chainOn).join("/")}`;
      const ring = rings.get(ringKey) ?? joinedRing(nodes.map(ringOn));
      const tree = trees.get(treeKey) ?? joinedTree(nodes, nodes.map(chainOn), between);
      rings.set(ringKey, ring);
      trees.set(treeKey, tree);
      return { ring, tree };
    }),
  );
  const channels = [...(paths[0] as ChannelPaths[]), ...(paths.at(-1) as ChannelPaths[])];
  const isFew = nodes.length > 1 && bandwidth > 45 && channels.length < 16;
  return isFew ? [...channels, ...channels] : channels;
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

/** One ring through all nodes, from rank 0 on. */
function joinedRing(rings: readonly (readonly number[])[]): readonly number[] {
  let base = 0;
  const ring = rings.flatMap((gpus) => {
    const ranks = gpus.map((gpu) => base + gpu);
    base += gpus.length;
    return ranks;
  });
  const start = ring.indexOf(0);
  return ring.map((_, i) => ringAt(ring, start + i));
}

/** The chains of all nodes as one tree; `between` is the tree over nodes. */
function joinedTree(
  nodes: readonly NodeGraphs[],
  chains: readonly (readonly number[])[],
  between: Tree,
): Tree {
  let base = 0;
  const ranks = chains.map((gpus) => {
    const chain = gpus.map((gpu) => base + gpu);
    base += gpus.length;
    return chain;
  });
  const children: number[][] = Array.from({ length: base }, () => []);
  ranks.forEach((chain, node) => {
    const below = (gpu: number): number[] => children[chain[gpu] as number] as number[];
    chain.slice(1).forEach((rank, gpu) => {
      below(gpu).push(rank);
    });
    const pattern = nodes[node]?.tree.pattern;
    const first = pattern === plainTree ? 0 : 1;
    const second = pattern === splitTree ? 1 : 0;
    (between.children[node] as readonly number[]).forEach((child, place) => {
      // The only child of the root is a second one.
      const at = place === 0 && node !== between.root ? first : second;
      below(at).push((ranks[child] as number[])[0] as number);
    });
  });
  return { root: (ranks[between.root] as number[])[0] as number, children };
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
