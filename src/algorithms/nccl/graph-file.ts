/**
 * Writes the graph file that NCCL_GRAPH_FILE reads: the counterpart of `graphTopology`.
 *
 * NCCL doubles the channels that it reads, takes the fewer of ring and tree, and searches whatever graph is missing; so
 * both are written, with the same number of channels. The order of GPUs is the ring, and the chain from root to leaf.
 */
import type { SearchResult, Topology } from "./topology.ts";

const ringPattern = 4;
const balancedTree = 1;

/** The file about a node, for GPUs by device number: `devices[rank]` is the GPU of a rank. */
export function graphFile(topology: Topology, devices: readonly number[]): string {
  const { channels, ringSearch, treeSearch, sameChannels } = topology;
  const found = channels.slice(0, channels.length / 2);
  const shared = { devices, sameChannels };
  return [
    '<graphs version="1">',
    ...graph(
      0,
      { pattern: ringPattern, ...ringSearch, ...shared },
      found.map(({ ring }) => ring),
    ),
    ...graph(
      1,
      { pattern: balancedTree, ...treeSearch, ...shared },
      found.map(({ chain }) => [...chain].reverse()),
    ),
    "</graphs>",
    "",
  ].join("\n");
}

interface GraphFacts extends SearchResult {
  readonly devices: readonly number[];
  readonly sameChannels: boolean;
}

function graph(id: number, facts: GraphFacts, channels: readonly (readonly number[])[]): string[] {
  const { pattern = balancedTree, bandwidth, devices, sameChannels } = facts;
  const attributes = {
    id,
    pattern,
    crossnic: 0,
    nchannels: channels.length,
    speedintra: bandwidth,
    speedinter: bandwidth,
    latencyinter: 0,
    typeintra: "NVL",
    typeinter: "PIX",
    samechannels: sameChannels ? 1 : 0,
  };
  const text = Object.entries(attributes).map(([name, value]) => `${name}="${value}"`);
  return [
    `  <graph ${text.join(" ")}>`,
    ...channels.flatMap((ranks) => [
      "    <channel>",
      ...ranks.map((rank) => `      <gpu dev="0x${(devices[rank] as number).toString(16)}"/>`),
      "    </channel>",
    ]),
    "  </graph>",
  ];
}
