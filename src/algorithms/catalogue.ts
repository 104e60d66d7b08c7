/**
 * The catalogue: every algorithm of every collective. Adding one means its file and one row here.
 *
 * Names, checks, property tests, docs and benches are derived from this table. The first row of a collective is what
 * runs when nobody chooses.
 */
import type { SpecifiedCollective } from "../api/collectives/index.ts";
import type { Algorithm } from "./algorithm.ts";
import { linearAllReduce } from "./all-reduce/linear.ts";
import { ringAllReduce } from "./all-reduce/ring.ts";
import { pairwiseAllToAll } from "./all-to-all/pairwise.ts";
import { disseminationBarrier } from "./barrier/dissemination.ts";
import { binomialBroadcast } from "./broadcast/binomial.ts";

/** Every algorithm, by collective and name. */
export const catalogue = {
  allReduce: { ring: ringAllReduce, linear: linearAllReduce },
  broadcast: { binomial: binomialBroadcast },
  allToAll: { pairwise: pairwiseAllToAll },
  allToAllv: { pairwise: pairwiseAllToAll },
  barrier: { dissemination: disseminationBarrier },
} as const satisfies { readonly [C in SpecifiedCollective]: Readonly<Record<string, Algorithm>> };

/** Names of the algorithms of a collective. */
export type AlgorithmName<C extends SpecifiedCollective = SpecifiedCollective> =
  keyof (typeof catalogue)[C] & string;

/** A choice of algorithm for some collectives. */
export type AlgorithmChoice = { readonly [C in SpecifiedCollective]?: AlgorithmName<C> };

/** Every collective with a row, in the table's order. */
export const builtCollectives: readonly SpecifiedCollective[] = Object.keys(
  catalogue,
) as SpecifiedCollective[];

/** All algorithms of a collective, the default first. */
export function algorithmsOf(collective: SpecifiedCollective): readonly Algorithm[] {
  return Object.values(catalogue[collective]);
}

/** The algorithm of that name; the default without one; `undefined` for a name that the catalogue lacks. */
export function findAlgorithm(
  collective: SpecifiedCollective,
  name: string | undefined,
): Algorithm | undefined {
  const algorithms = algorithmsOf(collective);
  return name === undefined
    ? algorithms[0]
    : algorithms.find((algorithm) => algorithm.name === name);
}
