/**
 * The topology of a node from NCCL's own graph file, as NCCL_GRAPH_DUMP_FILE writes it and NCCL_GRAPH_FILE reads it.
 *
 * The file holds the result of NCCL's search, before it doubles the channels: graph 0 is the ring, graph 1 the tree. On
 * one node the tree is a chain from its root to its leaf. GPUs are named by device; the lowest is rank 0. The model that
 * chooses algorithms is Hopper's over NVLink, so other links are an error.
 */
import { UnsupportedError } from "../../api/errors.ts";
import { parseXml, type XmlElement, xmlFault } from "./graph-file.ts";
import {
  type ChannelPaths,
  chainTree,
  ringAt,
  type SearchResult,
  type Topology,
} from "./topology.ts";

/** One graph of the file: the result of the search, and the devices of every channel. */
interface Graph extends SearchResult {
  readonly pattern: number;
  readonly line: number;
  readonly sameChannels: boolean;
  readonly devices: readonly (readonly number[])[];
}

const ringId = 0;
const treeId = 1;
const patterns: { readonly [id: number]: readonly number[] } = {
  [ringId]: [4],
  [treeId]: [1, 2, 3],
};

/** The topology of a graph file by number of ranks. Throws for a number other than 1 or the number of its GPUs. */
export function graphTopology(xml: string): (ranks: number) => Topology {
  const graphs = graphsOf(parseXml(xml));
  const ring = graphOf(graphs, ringId, "ring");
  const tree = graphOf(graphs, treeId, "tree");
  const devices = [...(ring.devices[0] as readonly number[])].sort((a, b) => a - b);
  for (const graph of [ring, tree]) assertSameDevices(graph, devices);
  const topology = topologyOf(ring, tree, devices);
  return (ranks) => {
    if (ranks === devices.length) return topology;
    if (ranks === 1) return singleRank(topology);
    throw new UnsupportedError(
      {
        headline: `topology xml: found ${ranks} ranks, its rings and trees are those of ${devices.length} GPUs`,
        hint: "NCCL searches again for every number of ranks: dump the graph of a communicator of this size",
      },
      { field: "topology" },
    );
  };
}

function topologyOf(ring: Graph, tree: Graph, devices: readonly number[]): Topology {
  const rankOf = (device: number): number => devices.indexOf(device);
  const found = Math.min(ring.channels, tree.channels);
  const paths = Array.from({ length: found }, (_, channel): ChannelPaths => {
    const circle = (ring.devices[channel] as readonly number[]).map(rankOf);
    const start = circle.indexOf(0);
    const chain = (tree.devices[channel] as readonly number[]).map(rankOf).reverse();
    return { ring: circle.map((_, i) => ringAt(circle, start + i)), tree: chainTree(chain) };
  });
  return {
    name: "Hopper GPUs with the given graph",
    ranks: devices.length,
    nodes: 1,
    evidence: "measured",
    channels: [...paths, ...paths],
    ringSearch: { channels: ring.channels, bandwidth: ring.bandwidth },
    treeSearch: { channels: tree.channels, bandwidth: tree.bandwidth, pattern: tree.pattern },
    sameChannels: ring.sameChannels,
  };
}

/** The topology of a single rank; its calls are copies. */
function singleRank(topology: Topology): Topology {
  return {
    ...topology,
    ranks: 1,
    channels: topology.channels.map(() => ({ ring: [0], tree: chainTree([0]) })),
  };
}

function graphsOf(root: XmlElement): Map<number, XmlElement> {
  if (root.name !== "graphs") throw xmlFault(root.line, `found <${root.name}>`, "<graphs>");
  if (integer(root, "version") !== 1)
    throw xmlFault(root.line, "found another version", 'version="1"');
  const graphs = new Map<number, XmlElement>();
  for (const element of root.children) {
    if (element.name !== "graph")
      throw xmlFault(element.line, `found <${element.name}>`, "<graph>");
    const id = integer(element, "id");
    if (graphs.has(id)) throw xmlFault(element.line, `graph ${id} is given twice`, "it once");
    graphs.set(id, element);
  }
  return graphs;
}

function graphOf(graphs: ReadonlyMap<number, XmlElement>, id: number, what: string): Graph {
  const element = graphs.get(id);
  if (element === undefined) {
    throw xmlFault(
      1,
      `found no graph with id="${id}"`,
      `the ${what} graph: NCCL would search for it again`,
    );
  }
  const { line, children } = element;
  const pattern = integer(element, "pattern");
  if (patterns[id]?.includes(pattern) !== true) {
    throw xmlFault(line, `pattern ${pattern}`, `that of a ${what}: ${patterns[id]?.join(", ")}`);
  }
  const channels = integer(element, "nchannels");
  if (channels < 1 || channels !== children.length) {
    throw xmlFault(
      line,
      `nchannels ${channels}, and ${children.length} channels`,
      "as many of them",
    );
  }
  const links = text(element, "typeintra");
  if (links !== "NVL") {
    throw new UnsupportedError(
      {
        headline: `topology xml: line ${line}: typeintra ${links}: NCCL's model of it is not known here`,
        hint: "only models of nodes with NVLink (NVL) between all GPUs are",
      },
      { field: "topology" },
    );
  }
  return {
    line,
    channels,
    pattern,
    bandwidth: bandwidthOf(element),
    sameChannels: integer(element, "samechannels") === 1,
    devices: children.map(devicesOf),
  };
}

function devicesOf(channel: XmlElement): number[] {
  if (channel.name !== "channel")
    throw xmlFault(channel.line, `found <${channel.name}>`, "<channel>");
  const devices = channel.children.map((element) => {
    if (element.name === "gpu") return integer(element, "dev");
    throw new UnsupportedError(
      {
        headline: `topology xml: line ${element.line}: found <${element.name}>: only graphs of one node are known`,
        hint: "dump the graph of a communicator on one node",
      },
      { field: "topology" },
    );
  });
  if (new Set(devices).size !== devices.length || devices.length === 0) {
    throw xmlFault(channel.line, `devices ${devices.join(", ")}`, "every GPU once");
  }
  return devices;
}

/** Checks that every channel has every GPU. */
function assertSameDevices({ devices, line }: Graph, expected: readonly number[]): void {
  devices.forEach((channel, number) => {
    const sorted = [...channel].sort((a, b) => a - b);
    if (sorted.length === expected.length && sorted.every((dev, i) => dev === expected[i])) return;
    throw xmlFault(
      line,
      `channel ${number} has devices ${channel.join(", ")}`,
      `those of the first ring: ${expected.join(", ")}`,
    );
  });
}

function text({ attributes, name, line }: XmlElement, attribute: string): string {
  const value = attributes.get(attribute);
  if (value === undefined) throw xmlFault(line, `<${name}> has no ${attribute}`, "one");
  return value;
}

/** A number in NCCL's form: decimal, or hexadecimal after 0x. */
function integer(element: XmlElement, attribute: string): number {
  const value = text(element, attribute);
  if (/^(0|[1-9]\d{0,8}|0x[0-9a-fA-F]{1,8})$/.test(value)) return Number(value);
  throw xmlFault(element.line, `${attribute}="${value}"`, "an integer");
}

function bandwidthOf(element: XmlElement): number {
  const value = text(element, "speedintra");
  const speed = /^\d+(\.\d+)?$/.test(value) ? Number(value) : 0;
  if (speed > 0) return speed;
  throw xmlFault(element.line, `speedintra="${value}"`, "GB/s above 0");
}
