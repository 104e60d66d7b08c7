/**
 * Joins the two ways a block was folded, fused and separate, where the way depends on the position.
 *
 * An executor folds each block both ways and takes, element by element, the one that NCCL's lanes take.
 */
import type { Lanes } from "../arithmetic/fold.ts";
import { separateMask } from "./rounding.ts";

/**
 * Puts into `fused` the elements of `separate` that are not fused. `first` is the position of element 0 of both in its
 * piece. To be called before `finish`: a NaN may change its bits on the way.
 */
export function takeSeparate(
  fused: Lanes,
  separate: Lanes,
  count: number,
  elementBytes: number,
  first: number,
): void {
  const mask = separateMask(elementBytes);
  let at = first % mask.length;
  for (let i = 0; i < count; i++) {
    if (mask[at] === 1) fused[i] = separate[i] as number;
    at++;
    if (at === mask.length) at = 0;
  }
}
