/**
 * Binomial reduce: in every round half of the ranks that still hold partials send them to the other half.
 *
 * Steps ⌈log₂ n⌉ · elements sent per rank count. Best for small buffers.
 * Each rank folds its own contribution into the first partial that arrives, and later partials into that.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import type { Folds } from "../association.ts";
import { doublings } from "../powers.ts";
import { input, output, scratch } from "../program.ts";

/** The binomial broadcast in reverse. */
export const binomialReduce: Algorithm = {
  name: "binomial",
  summary: "halves the ranks that hold partials in every round",
  source: "Thakur, Rabenseifner and Gropp 2005",
  credits: () => 0,
  chunksPerBlock: () => 1,
  scratchChunks: () => 1,
  cost: ({ ranks, count }) => ({ steps: doublings(ranks), sentElements: ranks === 1 ? 0 : count }),
  order: (folds, { ranks, root }) => orderBelow(folds, ranks, root, 0),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      const place = (rank - root + ranks) % ranks;
      const peer = (other: number): number => (other + root) % ranks;
      const children = childrenOf(place, ranks).map(peer);
      const parent = peer(place === 0 ? 0 : place - (place & -place));

      let held = input(0);
      children.forEach((child, index) => {
        const last = index === children.length - 1;
        if (last && place === 0) lane.recvReduceCopy(child, held, output(0), { final: true });
        else if (last) lane.recvReduceSend(child, held, parent);
        else lane.recvReduceCopy(child, held, scratch(0));
        held = scratch(0);
      });
      if (children.length > 0) return;
      if (place === 0) lane.copy(input(0), output(0), { final: true });
      else lane.send(input(0), parent);
    });
  },
};

/** Places below one, counted from the root: at distances 1, 2, 4, … up to its lowest set bit. */
function childrenOf(place: number, ranks: number): number[] {
  const reach = place === 0 ? 2 ** doublings(ranks) : place & -place;
  const children: number[] = [];
  for (let bit = 1; bit < reach && place + bit < ranks; bit *= 2) children.push(place + bit);
  return children;
}

/** The final value of the rank at a place. */
function orderBelow<V>(folds: Folds<V>, ranks: number, root: number, place: number): V {
  const rank = (place + root) % ranks;
  const [first, ...others] = childrenOf(place, ranks);
  if (first === undefined) return folds.own(rank);
  const held = folds.into(orderBelow(folds, ranks, root, first), rank);
  return others.reduce(
    (partial, child) => folds.join(partial, orderBelow(folds, ranks, root, child)),
    held,
  );
}
