/**
 * The order of folding that an algorithm states in its header, written in three verbs.
 *
 * `own`: a rank's contribution becomes a partial. `into`: a rank folds its own contribution into a received partial,
 * which for a pre-multiplied sum is one rounding. `join`: two partials are folded. The caller chooses the type of the
 * results: the verifier builds values, and compares them with those that the program leaves.
 */
import { assertArgument, assertInteger, hasFields } from "./arguments.ts";
import { hypercubeOf } from "./powers.ts";

/** The verbs, over values of type V. */
export interface Folds<V> {
  /** A rank's contribution as a partial: sent, stored, or the first value of a fold. */
  own(rank: number): V;
  /** A partial with the input chunk of a rank folded in directly: one rounding in a pre-multiplied sum. */
  into(partial: V, rank: number): V;
  /** Two partials, folded; either may be the left one. */
  join(left: V, right: V): V;
}

/** The place of the elements that are folded. */
export interface FoldPlace {
  readonly ranks: number;
  /** -1 where there is none. */
  readonly root: number;
  /** Number of the block that they lie in; a reduce-scatter has one for each rank. */
  readonly block: number;
  /** Number of the chunk within its block. */
  readonly chunk: number;
}

const verbs = { own: "function", into: "function", join: "function" } as const;

function assertFolds(subject: string, found: unknown): void {
  assertArgument(hasFields(found, verbs), subject, "folds", found, "the verbs own, into and join");
}

/** Most ranks whose order is listed. */
const maxRanks = 2 ** 20;

/** Along ranks in a row: the first one sends its contribution, every other one adds its own. */
export function along<V>(folds: Folds<V>, order: readonly number[]): V {
  assertFolds("along", folds);
  const isOrder = Array.isArray(order) && order.length > 0;
  assertArgument(isOrder, "along", "order", order, "an array of ranks, at least one");
  const wrong = order.findIndex((rank) => !Number.isSafeInteger(rank));
  assertArgument(wrong < 0, "along", `order[${wrong}]`, order[wrong], "a rank");
  let partial = folds.own(order[0] as number);
  for (let i = 1; i < order.length; i++) partial = folds.into(partial, order[i] as number);
  return partial;
}

/** All ranks once round the ring, ending at `last`. */
export function roundRing(ranks: number, last: number): number[] {
  assertInteger("roundRing", "ranks", ranks, 1, maxRanks);
  assertInteger("roundRing", "last", last, 0, ranks - 1);
  const order: number[] = [];
  for (let hop = 1; hop <= ranks; hop++) order.push((last + hop) % ranks);
  return order;
}

/**
 * Across a hypercube: a core that represents another rank folds its contribution into that rank's. Then partners fold
 * their partials, `nearest` first (distances 1, 2, 4, …) or `farthest` first (…, 4, 2, 1).
 */
export function acrossHypercube<V>(
  folds: Folds<V>,
  ranks: number,
  partners: "nearest" | "farthest",
): V {
  assertFolds("acrossHypercube", folds);
  assertInteger("acrossHypercube", "ranks", ranks, 1, maxRanks);
  const isKnown = partners === "nearest" || partners === "farthest";
  assertArgument(isKnown, "acrossHypercube", "partners", partners, "nearest or farthest");
  const { cores, rankOf, extraOf } = hypercubeOf(ranks);
  const partials: V[] = [];
  for (let core = 0; core < cores; core++) {
    const extra = extraOf(core);
    const own = rankOf(core);
    partials.push(extra === undefined ? folds.own(own) : folds.into(folds.own(extra), own));
  }
  for (let half = cores / 2; half >= 1; half /= 2) {
    const [step, apart] = partners === "nearest" ? [2, 1] : [1, half];
    for (let at = 0; at < half; at++) {
      partials[at] = folds.join(partials[step * at] as V, partials[step * at + apart] as V);
    }
  }
  return partials[0] as V;
}
