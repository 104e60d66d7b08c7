/** The specification of every collective that is built, by name. */
import { allReduceSpec } from "./all-reduce.ts";
import { allToAllSpec } from "./all-to-all.ts";
import { allToAllvSpec } from "./all-to-allv.ts";
import { barrierSpec } from "./barrier.ts";
import { broadcastSpec } from "./broadcast.ts";
import type { Specification } from "./spec.ts";

export type { CollectiveName, InputBlock, Specification } from "./spec.ts";

/** Collectives with a specification; programs exist for these. */
export type SpecifiedCollective = "allReduce" | "broadcast" | "allToAll" | "allToAllv" | "barrier";

/** A total table: a collective without its specification does not compile. */
export const specifications: { readonly [C in SpecifiedCollective]: Specification } = {
  allReduce: allReduceSpec,
  broadcast: broadcastSpec,
  allToAll: allToAllSpec,
  allToAllv: allToAllvSpec,
  barrier: barrierSpec,
};
