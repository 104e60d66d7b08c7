/**
 * The order of folding that an algorithm states in its header, written in three verbs.
 *
 * `own`: a rank's contribution goes its way as a partial. `into`: a rank folds its own contribution into a partial that
 * reached it, which for a pre-multiplied sum is one rounding. `join`: two partials are folded. What the verbs make is
 * up to who asks: the verifier asks for values, and compares them with those that the program leaves.
 */
import { hypercubeOf } from "./powers.ts";

/** What the verbs make of contributions. */
export interface Folds<V> {
  /** A rank's contribution, as a partial of its own. */
  own(rank: number): V;
  /** A partial with a rank's contribution folded in. */
  into(partial: V, rank: number): V;
  /** Two partials, folded. */
  join(left: V, right: V): V;
}

/** Which elements are folded. */
export interface FoldPlace {
  readonly ranks: number;
  /** -1 where there is none. */
  readonly root: number;
  /** Number of the block that they lie in; a reduce-scatter has one for each rank. */
  readonly block: number;
  /** Number of the chunk within its block. */
  readonly chunk: number;
}

/** Along ranks in a row: the first one sends its contribution, every other one folds in its own. */
export function along<V>(folds: Folds<V>, [first = 0, ...others]: readonly number[]): V {
  return others.reduce((partial, rank) => folds.into(partial, rank), folds.own(first));
}

/** All ranks once round the ring, ending at `last`. */
export function roundRing(ranks: number, last: number): number[] {
  return Array.from({ length: ranks }, (_, hop) => (last + 1 + hop) % ranks);
}

/**
 * Across a hypercube: cores that stand for another rank fold their contribution into its one; then partners fold their
 * partials, `nearest` first (distances 1, 2, 4, …) or `farthest` first (…, 4, 2, 1).
 */
export function acrossHypercube<V>(
  folds: Folds<V>,
  ranks: number,
  partners: "nearest" | "farthest",
): V {
  const { cores, rankOf, extraOf } = hypercubeOf(ranks);
  let partials = Array.from({ length: cores }, (_, core) => {
    const extra = extraOf(core);
    return extra === undefined
      ? folds.own(rankOf(core))
      : folds.into(folds.own(extra), rankOf(core));
  });
  while (partials.length > 1) {
    const half = partials.length / 2;
    const [step, apart] = partners === "nearest" ? [2, 1] : [1, half];
    partials = Array.from({ length: half }, (_, at) =>
      folds.join(partials[step * at] as V, partials[step * at + apart] as V),
    );
  }
  return partials[0] as V;
}
