/**
 * Chains: a whole left fold over many sources, cut into blocks that stay in the innermost cache.
 *
 * Nothing here touches a value. The order of the sources is the order of the fold; blocks only
 * decide when an element is worked on, never in which order its contributions meet.
 */
import type { Fold, Lanes } from "./fold.ts";

/** What a `Fold` does, apart from what it is. */
export type FoldMethods = Omit<Fold, "dtype" | "op" | "scales">;

/** One pass over one source: `begin`, `addContribution` or `addPartial` of a `Fold`. */
export type Hop<L extends Lanes> = (
  acc: L,
  accAt: number,
  source: L,
  sourceAt: number,
  count: number,
) => void;

/**
 * One pass over neighbouring sources of a chain, from number `first` on, `skip` elements into each.
 */
export type Gang<L extends Lanes> = (
  acc: L,
  accAt: number,
  sources: readonly L[],
  sourceAts: readonly number[],
  first: number,
  skip: number,
  count: number,
) => void;

/** A whole chain, as `Fold.chain`. */
export type Chain<L extends Lanes> = (
  acc: L,
  accAt: number,
  sources: readonly L[],
  sourceAts: readonly number[],
  count: number,
) => void;

/** The passes a chain of plain sums is made of; each is exact for its own number of sources. */
export interface Gangs<L extends Lanes> {
  /** `acc = s0 ∘ s1`. */
  readonly two: Gang<L>;
  /** `acc = ((s0 ∘ s1) ∘ s2) ∘ s3`. */
  readonly four: Gang<L>;
  /** `acc = (((acc ∘ s0) ∘ s1) ∘ s2) ∘ s3`. */
  readonly fourMore: Gang<L>;
}

/**
 * Elements a chain works on at a time: at most 16 KiB of accumulator, half of a first-level cache.
 */
const blockElements = 2048;

/** A chain that takes one source in each pass. */
export function chainByOne<L extends Lanes>(begin: Hop<L>, add: Hop<L>): Chain<L> {
  return (acc, accAt, sources, sourceAts, count) => {
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      begin(acc, accAt + done, sources[0] as L, (sourceAts[0] as number) + done, size);
      for (let next = 1; next < sources.length; next++) {
        add(acc, accAt + done, sources[next] as L, (sourceAts[next] as number) + done, size);
      }
    }
  };
}

/**
 * A chain that takes up to four sources in each pass: fewer trips of the accumulator through
 * memory.
 */
export function chainByFour<L extends Lanes>(
  begin: Hop<L>,
  add: Hop<L>,
  gangs: Gangs<L>,
): Chain<L> {
  return (acc, accAt, sources, sourceAts, count) => {
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      const at = accAt + done;
      let next = sources.length >= 4 ? 4 : Math.min(2, sources.length);
      if (next === 4) gangs.four(acc, at, sources, sourceAts, 0, done, size);
      else if (next === 2) gangs.two(acc, at, sources, sourceAts, 0, done, size);
      else begin(acc, at, sources[0] as L, (sourceAts[0] as number) + done, size);
      for (; next + 4 <= sources.length; next += 4) {
        gangs.fourMore(acc, at, sources, sourceAts, next, done, size);
      }
      for (; next < sources.length; next++) {
        add(acc, at, sources[next] as L, (sourceAts[next] as number) + done, size);
      }
    }
  };
}
