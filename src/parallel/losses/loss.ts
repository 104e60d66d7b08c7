/** The result of a loss, and the checks that all losses share. */
import { invalid, textOf } from "../../api/option-kinds.ts";

/** A loss over some samples, and their weight. */
export interface Loss {
  /** The mean, or the sum on request. */
  readonly value: number;
  /**
   * The divisor of the mean: elements, rows or their weights. The means of several batches, and their gradients, join to
   * those of all samples when each is weighted by this.
   */
  readonly weight: number;
}

/** The kind of value and gradient: mean or sum; `DataParallel` takes sums and divides once. */
export type Reduction = "mean" | "sum";

/** Refuses a reduction that is none: anything else would pass for a sum. */
export function assertReduction(loss: string, reduction: Reduction): void {
  if (reduction === "mean" || reduction === "sum") return;
  throw invalid(loss, "reduction", textOf(reduction), '"mean" or "sum"');
}

/** Refuses what has no length. */
export function assertList(loss: string, field: string, list: ArrayLike<number>): void {
  if (typeof list === "object" && typeof list?.length === "number") return;
  throw invalid(loss, field, textOf(list), "an array of numbers");
}

/** Refuses an array of the wrong length. */
export function assertLength(loss: string, field: string, found: number, needed: number): void {
  if (found === needed) return;
  throw invalid(loss, field, `${found} elements`, `${needed}`);
}
