/** What a loss gives, and the checks that all losses share. */
import { InvalidArgumentError } from "../../api/index.ts";

/** A mean over some samples, and what it was divided by. */
export interface Loss {
  readonly value: number;
  /**
   * What the mean was divided by: elements, rows or their weights. The means of several batches, and their gradients, join
   * to those of all samples when each is weighted by this.
   */
  readonly weight: number;
}

/** Refuses an array of the wrong length. */
export function assertLength(loss: string, field: string, found: number, needed: number): void {
  if (found === needed) return;
  throw refuse(loss, field, `${found} elements`, `${needed}`);
}

/** The refusal of an argument of a loss. */
export function refuse(
  loss: string,
  field: string,
  found: string,
  needed: string,
): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: `${loss}: ${field}: found ${found}, needs ${needed}` },
    { field },
  );
}
