/**
 * Hosts with one GPU each that are joined by sockets, as NCCL finds them on Hopper.
 *
 * Only the number of hosts and the speed of their network decide: the search takes the fastest channels that the interface
 * carries. Rings join the hosts in their order. Half of the channels have tree A of NCCL's double binary tree, the others tree
 * B. NCCL's results were recorded at 10 Gb/s on up to 32 hosts; everything else follows its source.
 */
import { countText } from "../../api/error-text.ts";
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import { connected, type NodeGraphs } from "./connect.ts";
import { plainTree, type Topology } from "./topology.ts";

/** Hosts and the network between them. */
export interface HostNetwork {
  /** A communicator has one rank on each of its hosts, so that this is the most ranks of one. */
  readonly hosts: number;
  /** NCCL searches the rings of hosts with several GPUs; those come from its graph files. */
  readonly gpusPerHost: 1;
  readonly network: {
    /** NCCL's own network, without InfiniBand. */
    readonly kind: "socket";
    /** The interface's speed in `/sys/class/net/NAME/speed`; NCCL takes 10 where it cannot be read. */
    readonly gigabitsPerSecond: number;
  };
}

/** The most hosts: as many as a world has ranks. */
const maxHosts = 131_072;

/** The topology of a number of ranks on hosts. Throws for invalid fields, and the function for more ranks than hosts. */
export function hostTopology(network: HostNetwork, subject = "sim"): (ranks: number) => Topology {
  assertHosts(network, subject);
  const { hosts } = network;
  const { gigabitsPerSecond } = network.network;
  return (ranks) => {
    if (!Number.isInteger(ranks) || ranks < 1) {
      throw invalid(subject, "ranks", textOf(ranks), "an integer of at least 1");
    }
    if (ranks > hosts) throw tooFew(ranks, hosts, subject);
    const key = `${ranks}/${gigabitsPerSecond}`;
    const topology = recent.get(key) ?? hostsAt(ranks, gigabitsPerSecond);
    recent.delete(key);
    recent.set(key, topology);
    const [oldest] = recent.keys();
    if (recent.size > maxRecent && oldest !== undefined) recent.delete(oldest);
    return topology;
  };
}

/** Topologies by ranks and speed, the latest last: plans of one share its orders of folding. */
const recent = new Map<string, Topology>();
const maxRecent = 16;

/** Hosts of one H200 each at the recorded speed, as many as there are ranks. */
export const h200Hosts = hostTopology({
  hosts: maxHosts,
  gpusPerHost: 1,
  network: { kind: "socket", gigabitsPerSecond: 10 },
});

function assertHosts(network: HostNetwork, subject: string): void {
  const place = { path: "topology" };
  assertOptions(subject, network, { hosts: true, gpusPerHost: true, network: true }, place);
  const { hosts, gpusPerHost } = network;
  if (!Number.isInteger(hosts) || hosts < 1 || hosts > maxHosts) {
    throw invalid(subject, "topology.hosts", textOf(hosts), `an integer in 1..${maxHosts}`);
  }
  if (gpusPerHost !== 1) {
    throw invalid(
      subject,
      "topology.gpusPerHost",
      textOf(gpusPerHost),
      "1",
      "NCCL searches the rings of hosts with several GPUs: set NCCL_GRAPH_DUMP_FILE=graph.xml in a job on these hosts, and pass { xml } with that file's text",
    );
  }
  const link = { path: "topology.network" };
  if (typeof network.network !== "object" || network.network === null) {
    throw invalid(subject, link.path, textOf(network.network), "{ kind, gigabitsPerSecond }");
  }
  assertOptions(subject, network.network, { kind: true, gigabitsPerSecond: true }, link);
  const { kind, gigabitsPerSecond } = network.network;
  if (kind !== "socket") {
    throw invalid(
      subject,
      "topology.network.kind",
      textOf(kind),
      '"socket", the network that is known',
    );
  }
  if (
    typeof gigabitsPerSecond === "number" &&
    gigabitsPerSecond > 0 &&
    gigabitsPerSecond < Infinity
  )
    return;
  const field = "topology.network.gigabitsPerSecond";
  throw invalid(subject, field, textOf(gigabitsPerSecond), "a number above 0");
}

function tooFew(ranks: number, hosts: number, subject: string): Error {
  return invalid(
    subject,
    "topology.hosts",
    `${hosts}`,
    `at least ${ranks}, one for each rank`,
    "a rank takes one host; name more hosts, or open fewer ranks",
  );
}

function hostsAt(ranks: number, gigabitsPerSecond: number): Topology {
  const node = nodeAt(gigabitsPerSecond / 8);
  const hosts = `${countText(ranks, "host")} of one GPU`;
  return connected(new Array<NodeGraphs>(ranks).fill(node), {
    name: `${hosts} (sockets at ${gigabitsPerSecond} Gb/s)`,
  });
}

/** GB/s that NCCL's search tries for a channel between nodes of Hopper GPUs. */
const speeds: readonly number[] = [
  48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12,
];

/** GB/s of a GPU's PCI Express link, 16 lanes of the fifth generation: no path to the network is faster. */
const linkBandwidth = 48;

/** GB/s of NCCL's one channel over a network that is slower than every speed of the list. */
const leastBandwidth = 0.1;

/** The graphs that NCCL's search finds on a node of one GPU, over an interface of that many GB/s. */
function nodeAt(interfaceBandwidth: number): NodeGraphs {
  const available = Math.min(interfaceBandwidth, linkBandwidth);
  let best = { channels: 1, bandwidth: 0 };
  for (const bandwidth of speeds) {
    const channels = Math.floor(available / bandwidth);
    if (channels === 0) continue;
    // NCCL does not go on to speeds below about half of a channel that it has found.
    if (best.bandwidth > 0 && bandwidth / best.bandwidth <= 0.49) break;
    if (channels * bandwidth > best.channels * best.bandwidth) best = { channels, bandwidth };
  }
  if (best.bandwidth === 0) best = { channels: 1, bandwidth: leastBandwidth };
  const splits = best.bandwidth >= 25;
  const channels = best.channels * (splits ? 2 : 1);
  const bandwidth = best.bandwidth / (splits ? 2 : 1);
  const graph = {
    channels: new Array<readonly number[]>(channels).fill([0]),
    pattern: plainTree,
    bandwidth,
    interBandwidth: bandwidth,
    interLatency: 0,
    // Sockets are farther than the links that LL128 is safe on.
    ll128: false,
    sameChannels: true,
    alternates: false,
  };
  const tree = { ...graph, bandwidth: treeBandwidth(bandwidth, channels) };
  return { gpus: 1, ring: graph, tree };
}

/** For trees the search raises the speed within the node as long as it is below twice that between nodes. */
function treeBandwidth(between: number, channels: number): number {
  let within = between;
  for (let at = speeds.indexOf(between) - 1; at >= 0 && within < 2 * between; at--) {
    const faster = speeds[at] as number;
    if (faster * channels > linkBandwidth) break;
    within = faster;
  }
  return within;
}
