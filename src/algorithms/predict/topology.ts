/** The topology of a large machine: the links that pairs of ranks share. Pure descriptions. */
import type { Fabric } from "../engine/index.ts";

/** A topology for a number of ranks. */
export interface Topology {
  /** In words, such as `fat tree of 8 x 16`. */
  readonly name: string;
  /** Number of ranks. */
  readonly ranks: number;
  /** Number of links. */
  readonly links: number;
  /** Number of the link that a message takes at its hop 0, 1, 2 …; -1 after its last link. */
  link(from: number, to: number, hop: number): number;
  /** Ranks after which the topology repeats: adding a multiple of it to all ranks changes no path. */
  readonly period: number;
  /** True when flipping bits of all ranks above the period changes no path either. */
  readonly flips: boolean;
  /** The link that represents this one and all its renumberings. */
  standIn(link: number): number;
  /** Bandwidth of a link, in units of a rank's port. */
  width(link: number): number;
}

/** The cost of the links of a topology. */
export interface LinkCost {
  /** Bandwidth of a rank's port, in 10⁹ bytes a second. */
  readonly gigabytesPerSecond: number;
  /** Time from the start of a link to its end, with the switch there. */
  readonly hopLatencyPs: number;
}

/** A topology with costs, for elements of `bytesPerElement` bytes. */
export function fabricOf(topology: Topology, cost: LinkCost, bytesPerElement: number): Fabric {
  const psPerElement = (bytesPerElement * 1000) / cost.gigabytesPerSecond;
  return {
    links: topology.links,
    link: topology.link,
    latency: () => cost.hopLatencyPs,
    occupancy: (link, elements) => Math.ceil((elements * psPerElement) / topology.width(link)),
  };
}

/** A fabric in which the ranks below the period of its topology, and their links, represent all. */
export function representativeFabric(fabric: Fabric, topology: Topology): Fabric {
  return {
    ...fabric,
    link: (from, to, hop) => {
      const link = fabric.link(from, to, hop);
      return link < 0 ? link : topology.standIn(link);
    },
  };
}
