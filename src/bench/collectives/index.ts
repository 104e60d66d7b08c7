/** The table of measured collectives. A new one is a row. */
import { allGather, allToAll, barrier, broadcast, gather, scatter, sendRecv } from "./copies.ts";
import { allReduce, reduce, reduceScatter } from "./reductions.ts";
import type { MeasuredCollective } from "./row.ts";
import { allGatherv, allToAllv, reduceScatterv } from "./variable.ts";

/** Every measured collective; a backend may lack some. */
export const measuredCollectives: readonly MeasuredCollective[] = [
  allReduce,
  reduce,
  broadcast,
  allGather,
  allGatherv,
  reduceScatter,
  reduceScatterv,
  allToAll,
  allToAllv,
  gather,
  scatter,
  sendRecv,
  barrier,
];

/** The row of a collective, however it is spelled: `allReduce`, `all-reduce`, `all_reduce`, `allreduce`. */
export function findCollective(name: string): MeasuredCollective | undefined {
  const bare = name.replace(/[-_]/g, "").toLowerCase();
  return measuredCollectives.find(({ collective }) => collective.toLowerCase() === bare);
}
