/**
 * Chains: a whole left fold over many sources, cut into blocks that stay in the innermost cache.
 *
 * No code here changes a value. The order of the sources is the order of the fold. Blocks decide
 * the time at which an element is computed, never the order of its contributions.
 */
import type { Fold, Lanes } from "./fold.ts";

/** The methods of a `Fold`, without its data. */
export type FoldMethods = Omit<Fold, "dtype" | "op" | "scales" | "terms">;

/** One pass over one source: `begin`, `addContribution` or `addPartial` of a `Fold`. */
export type Hop<L extends Lanes> = (
  acc: L,
  accAt: number,
  source: L,
  sourceAt: number,
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

/**
 * The passes of a chain of plain sums, one for each number of sources.
 *
 * They get views of exactly one block: V8 reads `a[i]` much faster than `a[at + i]`.
 */
export interface ChainPasses<L extends Lanes> {
  /** `acc = a ∘ b`. */
  readonly two: (acc: L, a: L, b: L) => void;
  /** `acc = ((a ∘ b) ∘ c) ∘ d`. */
  readonly four: (acc: L, a: L, b: L, c: L, d: L) => void;
  /** `acc = (((acc ∘ a) ∘ b) ∘ c) ∘ d`. */
  readonly fourMore: (acc: L, a: L, b: L, c: L, d: L) => void;
}

/**
 * Elements of a block: at most 32 KiB of accumulator, and few views.
 */
const blockElements = 4096;

/** Below this number of elements, views cost more than they save. */
const fewElements = 96;

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
 * memory. `width` is the number of lanes of an element.
 */
export function chainByFour<L extends Lanes>(
  begin: Hop<L>,
  add: Hop<L>,
  passes: ChainPasses<L>,
  width = 1,
): Chain<L> {
  const byOne = chainByOne(begin, add);
  return (acc, accAt, sources, sourceAts, count) => {
    if (count < fewElements) {
      byOne(acc, accAt, sources, sourceAts, count);
      return;
    }
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      const at = accAt + done;
      const block = acc.subarray(at * width, (at + size) * width) as L;
      const view = (number: number): L => {
        const from = ((sourceAts[number] as number) + done) * width;
        return (sources[number] as L).subarray(from, from + size * width) as L;
      };
      let next = sources.length >= 4 ? 4 : Math.min(2, sources.length);
      if (next === 4) passes.four(block, view(0), view(1), view(2), view(3));
      else if (next === 2) passes.two(block, view(0), view(1));
      else begin(acc, at, sources[0] as L, (sourceAts[0] as number) + done, size);
      for (; next + 4 <= sources.length; next += 4) {
        passes.fourMore(block, view(next), view(next + 1), view(next + 2), view(next + 3));
      }
      for (; next < sources.length; next++) {
        add(acc, at, sources[next] as L, (sourceAts[next] as number) + done, size);
      }
    }
  };
}
