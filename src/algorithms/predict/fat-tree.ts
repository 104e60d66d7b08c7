/**
 * A fat tree: ranks in groups below a switch, groups in groups, and so on.
 *
 * Within a group of the first level every pair has its own path. Each group has one link up and one link down, as wide
 * as the ports of its ranks together divided by the oversubscription. A bundle of cables is modelled as one link, so
 * its capacity is shared evenly. Above the last level all groups are connected.
 */

import { invalid } from "../../api/option-kinds.ts";
import type { Topology } from "./topology.ts";

/** A fat tree for `ranks`: `groups[0]` ranks share the first switch, `groups[1]` such groups the second, and so on. */
export function fatTree(ranks: number, groups: readonly number[], oversubscription = 1): Topology {
  if (!Number.isSafeInteger(ranks) || ranks < 1) {
    throw invalid("fatTree", "ranks", `${ranks}`, "a whole number of at least 1");
  }
  for (const group of groups) {
    if (Number.isSafeInteger(group) && group >= 1) continue;
    throw invalid("fatTree", "groups", `${group}`, "whole numbers of at least 1");
  }
  if (groups.length === 0) throw invalid("fatTree", "groups", "none", "at least one");
  if (!(oversubscription >= 1 && oversubscription < Infinity)) {
    throw invalid("fatTree", "oversubscription", `${oversubscription}`, "a number of at least 1");
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
    standIn: (link) => {
      const group = link % total;
      const level = levelOf(group);
      const first = firsts[level] as number;
      const alike = (sizes.at(-1) as number) / (sizes[level] as number);
      return link - group + first + ((group - first) % alike);
    },
    width: (link) => (sizes[levelOf(link % total)] as number) / oversubscription,
  };
}
