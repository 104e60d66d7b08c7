/** The links of a film, from sender to receiver, and the figure they make. */
import type { Flight } from "../data/film.ts";

/** Directed links of some channels, each as `from→to`. */
export interface Graph {
  readonly ranks: readonly number[];
  readonly channels: ReadonlySet<number>;
  readonly links: ReadonlyMap<string, { readonly from: number; readonly to: number }>;
}

export const linkKey = (from: number, to: number): string => `${from}→${to}`;

/** One graph for each set of channels that use the same links. */
export function graphsOf(flights: readonly Flight[], size: number): Graph[] {
  const byChannel = new Map<number, Map<string, { from: number; to: number }>>();
  for (const { message } of flights) {
    const { from, to, channel } = message;
    const links = byChannel.get(channel) ?? new Map();
    byChannel.set(channel, links.set(linkKey(from, to), { from, to }));
  }
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const graphs = new Map<string, Graph & { channels: Set<number> }>();
  for (const [channel, links] of [...byChannel].sort(([a], [b]) => a - b)) {
    const key = [...links.keys()].sort().join();
    const known = graphs.get(key);
    if (known === undefined) graphs.set(key, { ranks, channels: new Set([channel]), links });
    else known.channels.add(channel);
  }
  if (graphs.size === 0) return [{ ranks, channels: new Set([0]), links: new Map() }];
  return [...graphs.values()];
}

/** Several graphs as one. */
export function joined(graphs: readonly Graph[]): Graph {
  const [first] = graphs;
  return {
    ranks: first?.ranks ?? [],
    channels: new Set(graphs.flatMap(({ channels }) => [...channels])),
    links: new Map(graphs.flatMap(({ links }) => [...links])),
  };
}

/** Peers of every rank, whichever way. */
function neighbours({ ranks, links }: Graph): number[][] {
  const peers = ranks.map(() => new Set<number>());
  for (const { from, to } of links.values()) {
    peers[from]?.add(to);
    peers[to]?.add(from);
  }
  return peers.map((set) => [...set].sort((a, b) => a - b));
}

export type Figure =
  /** Ranks in the order of the ring, or of the chain from its end. */
  | { readonly kind: "ring" | "chain"; readonly order: readonly number[] }
  | TreeFigure
  | { readonly kind: "mesh"; readonly order: readonly number[] };

export interface TreeFigure {
  readonly kind: "tree";
  readonly layers: readonly (readonly TreeNode[])[];
  /** Ranks without children; each has a column of its own. */
  readonly leaves: number;
}

/** A rank in a tree: across from 0 to 1. */
export interface TreeNode {
  readonly rank: number;
  readonly across: number;
  /** Its column, counted from 0, for a rank without children. */
  readonly column: number | undefined;
}

/** The figure that a graph makes; a tree hangs from `root`. */
export function figureOf(graph: Graph, root: number): Figure {
  const peers = neighbours(graph);
  const size = graph.ranks.length;
  const edges = peers.reduce((sum, each) => sum + each.length, 0) / 2;
  const reached = walk(peers, root);
  if (reached.length === size && size > 1) {
    const isPath = peers.every(({ length }) => length <= 2);
    if (edges === size && isPath) return { kind: "ring", order: walk(peers, 0) };
    if (edges === size - 1) {
      const end = peers.findIndex(({ length }) => length === 1);
      if (isPath && size > 2) {
        const start = peers[root]?.length === 1 ? root : end;
        return { kind: "chain", order: walk(peers, start) };
      }
      return treeOf(peers, root);
    }
  }
  return { kind: "mesh", order: graph.ranks };
}

/** Every rank that can be reached, always the smallest neighbour first. */
function walk(peers: readonly (readonly number[])[], start: number): number[] {
  const seen = new Set<number>([start]);
  const visit = (rank: number): void => {
    for (const peer of peers[rank] ?? []) {
      if (seen.has(peer)) continue;
      seen.add(peer);
      visit(peer);
    }
  };
  visit(start);
  return [...seen];
}

/** Leaves side by side, every other rank above the middle of its children. */
function treeOf(peers: readonly (readonly number[])[], root: number): TreeFigure {
  const layers: TreeNode[][] = [];
  const across = new Map<number, number>();
  let leaves = 0;
  const place = (rank: number, parent: number): number => {
    const children = (peers[rank] ?? []).filter((peer) => peer !== parent);
    const places = children.map((child) => place(child, rank));
    const [first, last] = [places[0], places.at(-1)];
    const at = first === undefined || last === undefined ? leaves++ : (first + last) / 2;
    across.set(rank, at);
    return at;
  };
  place(root, -1);
  const descend = (rank: number, parent: number, depth: number): void => {
    layers[depth] ??= [];
    const at = across.get(rank) ?? 0;
    const isLeaf = (peers[rank] ?? []).every((peer) => peer === parent);
    const column = isLeaf ? at : undefined;
    layers[depth].push({ rank, across: (at + 0.5) / Math.max(1, leaves), column });
    for (const peer of peers[rank] ?? []) if (peer !== parent) descend(peer, rank, depth + 1);
  };
  descend(root, -1, 0);
  return { kind: "tree", layers, leaves };
}
