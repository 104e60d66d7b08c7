/** How the ranks of a large machine are wired: which links every pair shares with others. Pure descriptions. */
import type { Fabric } from "../engine/index.ts";

/** A wiring for a number of ranks. */
export interface Topology {
  /** In words, such as `fat tree of 8 x 16`. */
  readonly name: string;
  /** How many ranks are wired. */
  readonly ranks: number;
  /** How many links there are. */
  readonly links: number;
  /** Number of the link that a message takes at its hop 0, 1, 2 …; -1 when it has none left to take. */
  link(from: number, to: number, hop: number): number;
  /** Ranks after which the wiring repeats: ranks that are renumbered by a multiple of it are wired as before. */
  readonly period: number;
  /** True when that holds for bits that are flipped, too, and not only for ranks that are turned. */
  readonly flips: boolean;
  /** The link that stands for this one, and all that renumbering makes of it. */
  standIn(link: number): number;
  /** What a link carries, in times of what a rank's port does. */
  width(link: number): number;
}

/** What the links of a topology cost. */
export interface LinkCost {
  /** What a rank's port carries, in 10⁹ bytes a second. */
  readonly gigabytesPerSecond: number;
  /** From the begin of a link to its end, with the switch there. */
  readonly hopLatencyPs: number;
}

/** A topology with costs, for elements of so many bytes. */
export function fabricOf(topology: Topology, cost: LinkCost, bytesPerElement: number): Fabric {
  const psPerElement = (bytesPerElement * 1000) / cost.gigabytesPerSecond;
  return {
    links: topology.links,
    link: topology.link,
    latency: () => cost.hopLatencyPs,
    occupancy: (link, elements) => Math.ceil((elements * psPerElement) / topology.width(link)),
  };
}

/** A fabric in which ranks up to the period of its topology stand for all, and so do their links. */
export function foldedFabric(fabric: Fabric, topology: Topology): Fabric {
  return {
    ...fabric,
    link: (from, to, hop) => {
      const link = fabric.link(from, to, hop);
      return link < 0 ? link : topology.standIn(link);
    },
  };
}
