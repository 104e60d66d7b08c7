/**
 * The catalogue: every algorithm of every collective. Adding one means its file and one row here.
 *
 * Names, checks, property tests, docs and benches are derived from this table. The first row of a collective is its
 * default where no algorithm is chosen and no plan of NCCL is followed.
 */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import type { Algorithm } from "./algorithm.ts";
import { bruckAllGather } from "./all-gather/bruck.ts";
import { ringAllGather } from "./all-gather/ring.ts";
import { chainAllReduce } from "./all-reduce/chain.ts";
import { doubleTreeAllReduce } from "./all-reduce/double-tree.ts";
import { halvingDoublingAllReduce } from "./all-reduce/halving-doubling.ts";
import { linearAllReduce } from "./all-reduce/linear.ts";
import { recursiveDoublingAllReduce } from "./all-reduce/recursive-doubling.ts";
import { ringAllReduce } from "./all-reduce/ring.ts";
import { bruckAllToAll } from "./all-to-all/bruck.ts";
import { pairwiseAllToAll } from "./all-to-all/pairwise.ts";
import { assertCollective } from "./arguments.ts";
import { disseminationBarrier } from "./barrier/dissemination.ts";
import { binomialBroadcast } from "./broadcast/binomial.ts";
import { chainBroadcast } from "./broadcast/chain.ts";
import { directGather } from "./gather/direct.ts";
import { binomialReduce } from "./reduce/binomial.ts";
import { chainReduce } from "./reduce/chain.ts";
import { recursiveHalvingReduceScatter } from "./reduce-scatter/recursive-halving.ts";
import { ringReduceScatter } from "./reduce-scatter/ring.ts";
import { directScatter } from "./scatter/direct.ts";

/** Every algorithm, by collective and name. */
export const catalogue = {
  allReduce: {
    ring: ringAllReduce,
    chain: chainAllReduce,
    "double-tree": doubleTreeAllReduce,
    "halving-doubling": halvingDoublingAllReduce,
    "recursive-doubling": recursiveDoublingAllReduce,
    linear: linearAllReduce,
  },
  reduce: { chain: chainReduce, binomial: binomialReduce },
  broadcast: { binomial: binomialBroadcast, chain: chainBroadcast },
  allGather: { ring: ringAllGather, bruck: bruckAllGather },
  allGatherv: { ring: ringAllGather },
  reduceScatter: { ring: ringReduceScatter, "recursive-halving": recursiveHalvingReduceScatter },
  reduceScatterv: { ring: ringReduceScatter },
  allToAll: { pairwise: pairwiseAllToAll, bruck: bruckAllToAll },
  allToAllv: { pairwise: pairwiseAllToAll },
  gather: { direct: directGather },
  scatter: { direct: directScatter },
  barrier: { dissemination: disseminationBarrier },
} as const satisfies { readonly [C in SpecifiedCollective]: Readonly<Record<string, Algorithm>> };

/** Names of the algorithms of a collective. */
export type AlgorithmName<C extends SpecifiedCollective = SpecifiedCollective> =
  keyof (typeof catalogue)[C] & string;

/** A choice of algorithm for some collectives: a name of the catalogue, or an `Algorithm` of the caller. */
export type AlgorithmChoice = {
  readonly [C in SpecifiedCollective]?: AlgorithmName<C> | Algorithm | undefined;
};

/** Every collective with a row, in the table's order. */
export const builtCollectives: readonly SpecifiedCollective[] = Object.keys(
  catalogue,
) as SpecifiedCollective[];

/**
 * All algorithms of a collective, the default first.
 *
 * @throws InvalidArgumentError for a collective that the catalogue lacks.
 */
export function algorithmsOf(collective: SpecifiedCollective): readonly Algorithm[] {
  assertCollective("catalogue", collective);
  return Object.values(catalogue[collective]);
}

/** The algorithm of that name; the default without one; `undefined` for a name that the catalogue lacks. Throws as `algorithmsOf`. */
export function findAlgorithm(
  collective: SpecifiedCollective,
  name: string | undefined,
): Algorithm | undefined {
  const algorithms = algorithmsOf(collective);
  return name === undefined
    ? algorithms[0]
    : algorithms.find((algorithm) => algorithm.name === name);
}
