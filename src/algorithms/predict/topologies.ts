/** The topologies of large machines: the links that pairs of ranks share. Pure descriptions. */

import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertAmount, assertArgument, assertPositive, hasFields } from "../arguments.ts";
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
  representativeLink(link: number): number;
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
  const isTopology = hasFields(topology, { links: "number", link: "function", width: "function" });
  assertArgument(isTopology, "fabricOf", "topology", topology, "one such as torus([4, 4])");
  const isCost = hasFields(cost, { gigabytesPerSecond: "number", hopLatencyPs: "number" });
  assertArgument(
    isCost,
    "fabricOf",
    "cost",
    cost,
    "an object with gigabytesPerSecond and hopLatencyPs",
  );
  assertPositive("fabricOf", "cost.gigabytesPerSecond", cost.gigabytesPerSecond);
  assertAmount("fabricOf", "cost.hopLatencyPs", cost.hopLatencyPs);
  assertAmount("fabricOf", "bytesPerElement", bytesPerElement);
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
      return link < 0 ? link : topology.representativeLink(link);
    },
  };
}

/** Product of the sizes of a topology. Throws for none, for sizes below 1, and for a product that is not exact. */
function sizesProduct(subject: string, field: string, sizes: readonly number[]): number {
  if (!Array.isArray(sizes)) throw invalid(subject, field, textOf(sizes), "a list of numbers");
  if (sizes.length === 0) throw invalid(subject, field, "none", "at least one");
  let product = 1;
  for (const size of sizes) {
    if (!Number.isSafeInteger(size) || size < 1) {
      throw invalid(subject, field, textOf(size), "whole numbers of at least 1");
    }
    product *= size;
  }
  if (product <= maxProduct) return product;
  throw invalid(subject, field, sizes.join(" x "), `a product of at most ${maxProduct}`);
}

/** Most ranks of all sizes together: numbers of links stay exact. */
const maxProduct = 2 ** 40;

const maxOversubscription = 1e6;

// A fat tree: ranks in groups below a switch, groups in groups, and so on.
//
// Within a group of the first level every pair has its own path. Each group has one link up and one link down, as wide
// as the ports of its ranks together divided by the oversubscription. A bundle of cables is modelled as one link, so
// its capacity is shared evenly. Above the last level all groups are connected.

/** A fat tree for `ranks`: `groups[0]` ranks share the first switch, `groups[1]` such groups the second, and so on. */
export function fatTree(ranks: number, groups: readonly number[], oversubscription = 1): Topology {
  if (!Number.isSafeInteger(ranks) || ranks < 1) {
    throw invalid("fatTree", "ranks", textOf(ranks), "a whole number of at least 1");
  }
  sizesProduct("fatTree", "groups", groups);
  const isNumber = typeof oversubscription === "number";
  if (!(isNumber && oversubscription >= 1 && oversubscription <= maxOversubscription)) {
    const needs = `a number in 1..${maxOversubscription}`;
    throw invalid("fatTree", "oversubscription", textOf(oversubscription), needs);
  }
  const sizes: number[] = [];
  for (const group of groups) sizes.push((sizes.at(-1) ?? 1) * group);
  /** Number of the first group of each level, over all levels. */
  const firsts = [0];
  for (const size of sizes) firsts.push((firsts.at(-1) as number) + Math.ceil(ranks / size));
  const total = firsts.at(-1) as number;
  const levelOf = (group: number): number =>
    sizes.findIndex((_, at) => group < (firsts[at + 1] ?? 0));
  const groupOf = (rank: number, level: number): number =>
    (firsts[level] as number) + Math.floor(rank / (sizes[level] as number));
  /** Number of levels that a message goes up. */
  const height = (from: number, to: number): number => {
    let level = 0;
    while (level < sizes.length && groupOf(from, level) !== groupOf(to, level)) level++;
    return level;
  };
  return {
    name: `fat tree of ${groups.join(" x ")}, oversubscribed ${oversubscription}:1`,
    ranks,
    links: 2 * total,
    link: (from, to, hop) => {
      const up = height(from, to);
      if (hop < up) return groupOf(from, hop);
      if (hop < 2 * up) return total + groupOf(to, 2 * up - 1 - hop);
      return -1;
    },
    // Flipping bits preserves groups that are whole subcubes.
    flips: Number.isInteger(Math.log2(sizes.at(-1) as number)),
    period: sizes.at(-1) as number,
    representativeLink: (link) => {
      const group = link % total;
      const level = levelOf(group);
      const first = firsts[level] as number;
      const alike = (sizes.at(-1) as number) / (sizes[level] as number);
      return link - group + first + ((group - first) % alike);
    },
    width: (link) => (sizes[levelOf(link % total)] as number) / oversubscription,
  };
}

// A torus: every rank is connected to two neighbours in each dimension, with one link in each direction.
//
// A message goes along the first dimension first, then the second, and so on, in the shorter direction; of two equal
// ones, upwards. One dimension makes a ring.

/** A torus of `dimensions`, the first of them the one in which rank numbers run. Links are as wide as ports. */
export function torus(dimensions: readonly number[]): Topology {
  const ranks = sizesProduct("torus", "dimensions", dimensions);
  // A rotation along the last dimension changes no path.
  const slice = ranks / (dimensions.at(-1) ?? 1);
  return {
    name: dimensions.length === 1 ? "ring" : `torus of ${dimensions.join(" x ")}`,
    ranks,
    links: 2 * dimensions.length * ranks,
    link: (from, to, hop) => {
      let node = from;
      let left = hop;
      let stride = 1;
      for (let dimension = 0; dimension < dimensions.length; dimension++) {
        const size = dimensions[dimension] as number;
        const at = Math.floor(node / stride) % size;
        const ahead = ((Math.floor(to / stride) % size) - at + size) % size;
        const up = 2 * ahead <= size;
        const hops = up ? ahead : size - ahead;
        const moved = (steps: number): number => {
          const place = (at + (up ? steps : size - steps)) % size;
          return node + (place - at) * stride;
        };
        if (left < hops) {
          return (moved(left) * dimensions.length + dimension) * 2 + (up ? 0 : 1);
        }
        left -= hops;
        node = moved(hops);
        stride *= size;
      }
      return -1;
    },
    period: slice,
    flips: false,
    representativeLink: (link) => {
      const width = 2 * dimensions.length;
      return (Math.floor(link / width) % slice) * width + (link % width);
    },
    width: () => 1,
  };
}
