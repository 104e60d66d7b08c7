/** The facts about a node with other rings than the search found: what a graph file with permuted rings does to NCCL. */
import { at } from "./orders.ts";
import type { Topology } from "./topology.ts";

/** The same node with one ring in every channel: the ranks in the order of their `next` pointers. */
export function withRing(topology: Topology, order: readonly number[]): Topology {
  const start = order.indexOf(0);
  const ring = order.map((_, i) => at(order, start + i));
  return {
    ...topology,
    name: `${topology.name} with rings ${ring.join("-")}`,
    channels: topology.channels.map(({ chain }) => ({ ring, chain })),
  };
}
