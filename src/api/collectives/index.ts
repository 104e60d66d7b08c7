/** The specification of every collective that is built, by name. */

import type { CollectiveName, Specification } from "../specification.ts";
import { allGatherSpec } from "./all-gather.ts";
import { allGathervSpec } from "./all-gatherv.ts";
import { allReduceSpec } from "./all-reduce.ts";
import { allToAllSpec } from "./all-to-all.ts";
import { allToAllvSpec } from "./all-to-allv.ts";
import { barrierSpec } from "./barrier.ts";
import { broadcastSpec } from "./broadcast.ts";
import { gatherSpec } from "./gather.ts";
import { reduceSpec } from "./reduce.ts";
import { reduceScatterSpec } from "./reduce-scatter.ts";
import { reduceScattervSpec } from "./reduce-scatterv.ts";
import { scatterSpec } from "./scatter.ts";

/** Collectives with a specification; programs exist for these. */
export type SpecifiedCollective = Exclude<
  CollectiveName,
  "send" | "recv" | "sendRecv" | "group" | "split" | "capture" | "replay"
>;

/** A total table: a collective without its specification does not compile. */
export const specifications: { readonly [C in SpecifiedCollective]: Specification } = {
  allReduce: allReduceSpec,
  reduce: reduceSpec,
  broadcast: broadcastSpec,
  allGather: allGatherSpec,
  allGatherv: allGathervSpec,
  reduceScatter: reduceScatterSpec,
  reduceScatterv: reduceScattervSpec,
  allToAll: allToAllSpec,
  allToAllv: allToAllvSpec,
  gather: gatherSpec,
  scatter: scatterSpec,
  barrier: barrierSpec,
};
