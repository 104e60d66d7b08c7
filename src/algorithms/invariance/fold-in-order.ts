/** The fold of contributions in a given order, element by element: the value that a plan promises. */
import type { Fold, Lanes } from "../arithmetic/fold.ts";
import type { FoldOrder } from "../nccl/fold-order.ts";

/** Lanes of `count` elements from element `at` on, by rank; lanes of results have them too. */
export interface FoldedLanes {
  readonly sources: readonly Lanes[];
  readonly at: number;
  readonly count: number;
  /** New lanes of `count` elements. */
  readonly make: () => Lanes;
}

/** Folds into `target`, without the `finish` of the fold; `targetAt` is its first element. */
export function foldInOrder(
  fold: Fold,
  order: FoldOrder,
  lanes: FoldedLanes,
  target: Lanes,
  targetAt = lanes.at,
): void {
  const { sources, at, count, make } = lanes;
  for (const [i, each] of order.entries()) {
    if (typeof each !== "number") {
      if (i === 0) foldInOrder(fold, each, lanes, target, targetAt);
      else {
        const partial = make();
        foldInOrder(fold, each, lanes, partial, 0);
        fold.addPartial(target, targetAt, partial, 0, count);
      }
    } else {
      const source = sources[each] as Lanes;
      if (i === 0) fold.begin(target, targetAt, source, at, count);
      else fold.addContribution(target, targetAt, source, at, count);
    }
  }
}
