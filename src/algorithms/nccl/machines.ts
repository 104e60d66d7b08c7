/** Machines as options name them: by name, as hosts of a network, or by the text of a graph file of NCCL. */
import { invalid, textOf } from "../../api/option-kinds.ts";
import { type GraphNodes, graphTopology } from "./graph-topology.ts";
import { type HostNetwork, h200Hosts, hostTopology } from "./hosts.ts";
import { h200x8, type Topology } from "./topology.ts";

/** Machines with a name. */
export const topologies = {
  /** The first GPUs of eight H200 behind NVSwitch, one for each rank. */
  h200x8,
  /** Hosts of one H200 each at 10 Gb/s, one for each rank. */
  "h200-hosts": h200Hosts,
} as const;

/** The name of a machine. */
export type TopologyName = keyof typeof topologies;

/** True for the name of a machine. */
export function isTopologyName(found: unknown): found is TopologyName {
  return typeof found === "string" && Object.hasOwn(topologies, found);
}

/** A machine. */
export type TopologyOption = TopologyName | HostNetwork | GraphNodes;

/**
 * Topologies of a machine by number of ranks. Throws for an invalid option, and the function for too many ranks. `subject` begins
 * the errors.
 */
export function machineOf(option: TopologyOption, subject = "sim"): (ranks: number) => Topology {
  if (isTopologyName(option)) return topologies[option];
  if (typeof option === "object" && option !== null) {
    if ("xml" in option) return graphTopology(option, undefined, subject);
    if ("hosts" in option) return hostTopology(option, subject);
  }
  throw invalid(
    subject,
    "topology",
    textOf(option),
    "the name of a machine that is known",
    `names are ${Object.keys(topologies).join(", ")}; or pass { hosts, gpusPerHost, network }, or { xml } with the text of a graph file of NCCL`,
  );
}
