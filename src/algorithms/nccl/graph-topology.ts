/**
 * The topology of nodes from NCCL's own graph files, as NCCL_GRAPH_DUMP_FILE writes them and NCCL_GRAPH_FILE reads them.
 *
 * A file holds the result of NCCL's search on one node, before it doubles the channels: graph 0 is the ring, graph 1 the tree.
 * The search of a communicator over several nodes finds the NICs too: each channel then begins and ends with a `net`. GPUs are
 * named by device, and since NCCL 2.30 by rank too; without ranks the lowest device of a node is its first rank. The model that chooses algorithms is Hopper's over NVLink, so other
 * links within a node are an error.
 */
import { type InvalidArgumentError, UnsupportedError } from "../../api/errors.ts";
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import { connected, maxGraphChannels, type NodeGraph, type NodeGraphs } from "./connect.ts";
import {
  assertAttributes,
  fieldOf,
  parseXml,
  type XmlElement,
  type XmlPlace,
  xmlFault,
} from "./graph-file.ts";
import { type CpuVendor, chainTree, plainTree, type Topology } from "./topology.ts";

/** Nodes by the texts of NCCL's graph files. */
export interface GraphNodes {
  /** The file of every node, in the order of their ranks; one text alone is that of all nodes, of any number. */
  readonly xml: string | readonly string[];
  /** The vendor of the nodes' processors, which the files lack; Intel when left out, which NCCL takes all but AMD for. */
  readonly cpu?: CpuVendor | undefined;
}

/** One file. */
interface NodeFile {
  readonly at: XmlPlace;
  readonly graphs: NodeGraphs;
  /** The rank of its first GPU; left out where the file names none, as those before NCCL 2.30. */
  readonly firstRank: number | undefined;
  /** True if its channels begin and end at a NIC. */
  readonly isJoined: boolean;
}

/**
 * The topology of graph files by number of ranks. Throws for a number other than 1 or that of the GPUs of all nodes. Messages
 * call the files by their names.
 *
 * @throws InvalidArgumentError for text that is no graph file, or that contradicts itself; UnsupportedError for other links.
 */
export function graphTopology(
  graphs: string | GraphNodes,
  names?: readonly string[],
  subject = "sim",
): (ranks: number) => Topology {
  const option = typeof graphs === "string" ? { xml: graphs } : graphs;
  assertOptions(subject, option, { xml: true, cpu: true }, { path: "topology" });
  const files = filesOf(option, names, subject);
  const known = new Map<number, Topology>();
  return (ranks) => {
    const topology = known.get(ranks) ?? topologyOf(option, files, ranks);
    known.set(ranks, topology);
    return topology;
  };
}

/** Reads equal texts once; files with equal graphs share them, whatever ranks they name. */
function filesOf(
  { xml, cpu }: GraphNodes,
  names: readonly string[] | undefined,
  subject: string,
): NodeFile[] {
  if (cpu !== undefined && cpu !== "intel" && cpu !== "amd") {
    throw invalid(subject, "topology.cpu", textOf(cpu), '"intel" or "amd"');
  }
  const texts: readonly unknown[] = Array.isArray(xml) ? xml : [xml];
  const files = new Map<string, NodeFile>();
  const kinds = new Map<string, NodeGraphs>();
  const read = texts.map((text, place) => {
    if (typeof text !== "string") throw noText(text, subject);
    const name = names?.[place] ?? (texts.length > 1 ? `topology xml[${place}]` : "topology xml");
    const file = files.get(text) ?? sharing(fileOf(text, name), kinds);
    files.set(text, file);
    return file;
  });
  if (read.length === 0) throw noText(xml, subject);
  assertAlike(read, subject);
  return read;
}

function sharing(file: NodeFile, kinds: Map<string, NodeGraphs>): NodeFile {
  const kind = JSON.stringify(file.graphs);
  const graphs = kinds.get(kind) ?? file.graphs;
  kinds.set(kind, graphs);
  return { ...file, graphs };
}

function noText(found: unknown, subject: string): InvalidArgumentError {
  const needed = "the text of a graph file of NCCL, or an array with that of every node";
  return invalid(subject, "topology.xml", textOf(found), needed);
}

/** Every rank of NCCL predicts times by its own node's latency, so ranks of different nodes would choose differently. */
function assertAlike(files: readonly NodeFile[], subject: string): void {
  for (const graph of ["ring", "tree"] as const) {
    const latencies = [...new Set(files.map(({ graphs }) => graphs[graph].interLatency))];
    if (latencies.length < 2) continue;
    const found = `latencyinter ${latencies.join(" and ")}`;
    throw invalid(subject, "topology.xml", found, `one latency in the ${graph}s of all nodes`);
  }
}

function topologyOf(
  { xml, cpu = "intel" }: GraphNodes,
  files: readonly NodeFile[],
  ranks: number,
): Topology {
  const [file] = files as [NodeFile];
  if (ranks === 1)
    return singleRank(connected([file.graphs], { name: nameOf([file.graphs], cpu) }));
  const isOneText = typeof xml === "string";
  const nodes = isOneText && file.isJoined ? repeated(file, ranks) : files;
  const gpus = nodes.reduce((sum, { graphs }) => sum + graphs.gpus, 0);
  if (ranks !== gpus) throw otherRanks(ranks, files, isOneText);
  const first = nodes.find(({ isJoined }) => isJoined !== nodes.length > 1);
  if (first !== undefined) throw otherNodes(nodes.length);
  assertPlaces(nodes, isOneText);
  const graphs = nodes.map((node) => node.graphs);
  return connected(graphs, { name: nameOf(graphs, cpu), ...(nodes.length > 1 && { cpu }) });
}

/** Throws for a file with the ranks of another node. The one of many nodes may be of any. */
function assertPlaces(nodes: readonly NodeFile[], isOneText: boolean): void {
  let expected = 0;
  for (const { at, firstRank, graphs } of nodes) {
    const { gpus } = graphs;
    const isOfAny = isOneText && nodes.length > 1;
    const isRight = isOfAny ? (firstRank ?? 0) % gpus === 0 : (firstRank ?? expected) === expected;
    if (!isRight) {
      const needed = isOfAny
        ? `a multiple of its ${gpus} GPUs`
        : `rank ${expected}: files of nodes stand in the order of their ranks`;
      throw xmlFault(at, `the ranks begin with ${firstRank}`, needed);
    }
    expected += gpus;
  }
}

/** As many nodes of one kind as there are ranks for. */
function repeated(file: NodeFile, ranks: number): NodeFile[] {
  return new Array<NodeFile>(Math.floor(ranks / file.graphs.gpus)).fill(file);
}

function nameOf(nodes: readonly NodeGraphs[], cpu: CpuVendor): string {
  if (nodes.length === 1) return "Hopper GPUs with the given graph";
  const kinds = [...new Set(nodes)];
  const sizes = kinds.map(({ gpus }) => gpus);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const gpus = least === most ? `${least}` : `${least} to ${most}`;
  const files = kinds.length === 1 ? "graph" : "graphs";
  const vendor = cpu === "amd" ? "AMD" : "Intel";
  return `${nodes.length} hosts of ${gpus} Hopper ${most === 1 ? "GPU" : "GPUs"} with the given ${files} and ${vendor} CPUs`;
}

function otherRanks(
  ranks: number,
  files: readonly NodeFile[],
  isOneText: boolean,
): UnsupportedError {
  const [{ graphs, isJoined }] = files as [NodeFile];
  const { gpus } = graphs;
  const total = files.reduce((sum, file) => sum + file.graphs.gpus, 0);
  const owners =
    files.length > 1
      ? `${files.length} hosts with ${total} GPUs`
      : `${isJoined ? "hosts of " : ""}${gpus} GPUs`;
  const between =
    isOneText && !isJoined
      ? "; for several hosts, dump that of a communicator over all of them, which has <net> elements"
      : "";
  return new UnsupportedError(
    {
      headline: `topology xml: found ${ranks} ranks, its rings and trees are those of ${owners}`,
      hint: `NCCL searches again for every number of ranks: dump the graph of a communicator of this size${between}`,
    },
    { field: "topology" },
  );
}

function otherNodes(nodes: number): UnsupportedError {
  return new UnsupportedError(
    nodes === 1
      ? {
          headline: "topology xml: found rings between hosts, the ranks are on one host",
          hint: "dump the graph of a communicator on one host, which has no <net> elements",
        }
      : {
          headline: "topology xml: found rings of one host, the ranks are on several",
          hint: "dump the graph of a communicator over all hosts, which has <net> elements",
        },
    { field: "topology" },
  );
}

/** The topology of a single rank; its calls are copies. */
function singleRank(topology: Topology): Topology {
  return {
    ...topology,
    ranks: 1,
    channels: topology.channels.map(() => ({ ring: [0], tree: chainTree([0]) })),
  };
}

const ringId = 0;
const treeId = 1;
const patterns: { readonly [id: number]: readonly number[] } = {
  [ringId]: [4],
  [treeId]: [1, 2, 3],
};

/** One graph of a file. */
interface DeviceGraph {
  readonly at: XmlPlace;
  /** Its channels have devices in place of ranks. */
  readonly graph: NodeGraph;
  readonly isJoined: boolean;
  readonly gpus: readonly XmlElement[];
}

function fileOf(text: string, name: string): NodeFile {
  const root = parseXml(text, name);
  const elements = graphsOf(root);
  const ring = graphOf(root.at, elements, ringId, "ring");
  const tree = graphOf(root.at, elements, treeId, "tree");
  const ranks = ranksOf([...ring.gpus, ...tree.gpus]);
  const rankOf = (device: number): number => ranks?.get(device) ?? device;
  const devices = [...(ring.graph.channels[0] as readonly number[])];
  devices.sort((a, b) => rankOf(a) - rankOf(b));
  for (const graph of [ring, tree]) assertSameDevices(graph, devices);
  if (ranks !== undefined) assertConsecutive(devices.map(rankOf), ring.at);
  const { isJoined } = ring;
  if (tree.isJoined !== isJoined) {
    const has = isJoined ? "no <net>" : "<net>";
    throw xmlFault(tree.at, `the tree has ${has}`, "the same as the ring");
  }
  const gpus = devices.length;
  if (isJoined && gpus === 1 && tree.graph.pattern !== plainTree) {
    throw xmlFault(
      tree.at,
      `pattern ${tree.graph.pattern} for one GPU`,
      `${plainTree}: the others take a second GPU`,
    );
  }
  const numbers = new Map(devices.map((device, rank) => [device, rank]));
  const ranked = ({ graph }: DeviceGraph): NodeGraph => ({
    ...graph,
    channels: graph.channels.map((channel) => channel.map((dev) => numbers.get(dev) as number)),
  });
  const firstRank = ranks?.get(devices[0] as number);
  const at = (ring.gpus[0] as XmlElement).at;
  const graphs = { gpus, ring: ranked(ring), tree: ranked(tree) };
  return { at, graphs, firstRank, isJoined };
}

/** The rank of every device, where the elements have one. */
function ranksOf(gpus: readonly XmlElement[]): ReadonlyMap<number, number> | undefined {
  const isRanked = gpus[0]?.attributes.has("rank");
  const ranks = new Map<number, number>();
  const devices = new Map<number, number>();
  for (const gpu of gpus) {
    if (gpu.attributes.has("rank") !== isRanked) {
      throw xmlFault(
        gpu.at,
        `<gpu> has ${isRanked ? "no " : ""}rank`,
        "the same as the first <gpu>",
      );
    }
    if (!isRanked) continue;
    const [device, rank] = [deviceOf(gpu), integer(gpu, "rank")];
    const known = ranks.get(device) ?? rank;
    const owner = devices.get(rank) ?? device;
    if (known !== rank) throw xmlFault(gpu.at, `rank ${rank} of a GPU`, `its rank ${known}`);
    if (owner !== device) throw xmlFault(gpu.at, `rank ${rank} of two GPUs`, "a GPU for each");
    ranks.set(device, rank);
    devices.set(rank, device);
  }
  return isRanked ? ranks : undefined;
}

function assertConsecutive(ranks: readonly number[], at: XmlPlace): void {
  if (ranks.every((rank, place) => rank === (ranks[0] as number) + place)) return;
  throw xmlFault(at, `ranks ${ranks.join(", ")}`, "consecutive ones: ranks go node after node");
}

function graphsOf(root: XmlElement): Map<number, XmlElement> {
  if (root.name !== "graphs") throw xmlFault(root.at, `found <${root.name}>`, "<graphs>");
  assertAttributes(root, ["version"]);
  if (integer(root, "version") !== 1)
    throw xmlFault(root.at, "found another version", 'version="1"');
  const graphs = new Map<number, XmlElement>();
  for (const element of root.children) {
    if (element.name !== "graph") throw xmlFault(element.at, `found <${element.name}>`, "<graph>");
    const id = integer(element, "id");
    if (graphs.has(id)) throw xmlFault(element.at, `graph ${id} is given twice`, "it once");
    graphs.set(id, element);
  }
  return graphs;
}

const graphAttributes = [
  ...["id", "pattern", "crossnic", "nchannels", "speedintra", "speedinter", "latencyinter"],
  ...["typeintra", "typeinter", "samechannels"],
];

function graphOf(
  file: XmlPlace,
  graphs: ReadonlyMap<number, XmlElement>,
  id: number,
  what: string,
): DeviceGraph {
  const element = graphs.get(id);
  if (element === undefined) {
    throw xmlFault(
      file,
      `found no graph with id="${id}"`,
      `the ${what} graph: NCCL would search for it again`,
    );
  }
  assertAttributes(element, graphAttributes);
  const { at, children } = element;
  const pattern = integer(element, "pattern", patterns[id]);
  const count = integer(element, "nchannels");
  if (count < 1 || count !== children.length) {
    throw xmlFault(at, `nchannels ${count}, and ${children.length} channels`, "as many of them");
  }
  if (count > maxGraphChannels) {
    throw xmlFault(at, `nchannels ${count}`, `at most ${maxGraphChannels}, which NCCL doubles`);
  }
  const channels = children.map(channelOf);
  const isJoined = channels[0]?.isJoined ?? false;
  const other = channels.findIndex((channel) => channel.isJoined !== isJoined);
  if (other >= 0) {
    throw xmlFault(
      (children[other] as XmlElement).at,
      `channel ${other} has ${isJoined ? "no <net>" : "<net>"}`,
      "the same as channel 0",
    );
  }
  const devices = channels.map((channel) => channel.devices);
  assertLinks(element, devices[0]?.length ?? 0);
  const graph = {
    ...{ pattern, channels: devices },
    bandwidth: figure(element, "speedintra", "GB/s above 0"),
    interBandwidth: figure(element, "speedinter", "GB/s above 0"),
    interLatency: element.attributes.has("latencyinter")
      ? figure(element, "latencyinter", "microseconds", true)
      : 0,
    ll128: isWhole(element),
    sameChannels: integer(element, "samechannels", [0, 1]) === 1,
    alternates: integer(element, "crossnic", [0, 1, 2]) === 2,
  };
  return { at, graph, isJoined, gpus: channels.flatMap((channel) => channel.gpus) };
}

/** NCCL's kinds of links, from the nearest on. */
const links = ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"];

function linkOf(element: XmlElement, attribute: "typeintra" | "typeinter"): string {
  const type = fieldOf(element, attribute);
  if (links.includes(type)) return type;
  throw xmlFault(element.at, `${attribute} ${type}`, `one of ${links.join(", ")}`);
}

/** True for a network that NCCL takes LL128 over: it is no farther than the NIC of another GPU. */
function isWhole(element: XmlElement): boolean {
  return links.indexOf(linkOf(element, "typeinter")) <= links.indexOf("PXN");
}

function assertLinks(element: XmlElement, gpus: number): void {
  const type = linkOf(element, "typeintra");
  if (type === "NVL" || (gpus === 1 && type === "LOC")) return;
  throw new UnsupportedError(
    {
      headline: `${element.at.file}: line ${element.at.line}: typeintra ${type}: NCCL's model of it is not known here`,
      hint: "only models of nodes with NVLink (NVL) between all GPUs are",
    },
    { field: "topology" },
  );
}

/** The GPUs of a channel, and whether a NIC stands before and after them. */
function channelOf(channel: XmlElement): {
  readonly devices: number[];
  readonly gpus: readonly XmlElement[];
  readonly isJoined: boolean;
} {
  const { name, at, children } = channel;
  if (name !== "channel") throw xmlFault(at, `found <${name}>`, "<channel>");
  assertAttributes(channel, []);
  const isJoined = children[0]?.name === "net";
  const gpus: XmlElement[] = [];
  children.forEach((element, place) => {
    const isEnd = isJoined && (place === 0 || place === children.length - 1);
    const needed = isEnd ? "net" : "gpu";
    if (element.name !== needed) {
      const order = "<gpu> elements, or these between two <net>";
      throw xmlFault(element.at, `found <${element.name}>`, order);
    }
    assertAttributes(element, isEnd ? ["dev"] : ["dev", "rank"]);
    deviceOf(element);
    if (!isEnd) gpus.push(element);
  });
  const devices = gpus.map(deviceOf);
  if (new Set(devices).size !== devices.length || devices.length === 0) {
    throw xmlFault(at, `devices ${devices.join(", ")}`, "every GPU once");
  }
  return { devices, gpus, isJoined };
}

/** Checks that every channel has every GPU. */
function assertSameDevices({ graph, at }: DeviceGraph, expected: readonly number[]): void {
  graph.channels.forEach((channel, number) => {
    const found = new Set(channel);
    if (found.size === expected.length && expected.every((dev) => found.has(dev))) return;
    throw xmlFault(
      at,
      `channel ${number} has devices ${channel.join(", ")}`,
      `those of the first ring: ${expected.join(", ")}`,
    );
  });
}

/** NCCL reads devices in base 16, with or without 0x. */
function deviceOf(element: XmlElement): number {
  const value = fieldOf(element, "dev");
  if (/^(0x)?[0-9a-fA-F]{1,8}$/.test(value)) return Number.parseInt(value, 16);
  throw xmlFault(element.at, `dev="${value}"`, "a hexadecimal number of at most 8 digits");
}

function integer(element: XmlElement, attribute: string, known?: readonly number[]): number {
  const value = fieldOf(element, attribute);
  const number = /^(0|[1-9]\d{0,8})$/.test(value) ? Number(value) : -1;
  const needed = known === undefined ? "an integer" : `one of ${known.join(", ")}`;
  if (number >= 0 && (known?.includes(number) ?? true)) return number;
  throw xmlFault(element.at, `${attribute}="${value}"`, needed);
}

/** A decimal number of GB/s or microseconds. */
function figure(element: XmlElement, attribute: string, needed: string, orZero = false): number {
  const value = fieldOf(element, attribute);
  const number = /^\d{1,6}(\.\d{1,12})?$/.test(value) ? Number(value) : -1;
  if (number > 0 || (orZero && number === 0)) return number;
  throw xmlFault(element.at, `${attribute}="${value}"`, needed);
}
