/**
 * Recursive doubling all-reduce: in round k each rank exchanges its whole partial with the rank that differs in bit k.
 *
 * Steps ⌊log₂ n⌋, and 2 more when n is no power of two · elements sent per rank ⌊log₂ n⌋ · count (one count more by
 * ranks that represent another). Best for small buffers.
 * Both partners fold the same two partials, so all ranks hold the same bits: ((x0 + x1) + (x2 + x3)) + …
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import { acrossHypercube } from "../association.ts";
import { hypercubeOf } from "../powers.ts";
import { input, output } from "../program.ts";

/** Whole buffers across the edges of a hypercube. */
export const recursiveDoublingAllReduce: Algorithm = {
  name: "recursive-doubling",
  summary: "exchanges whole partials with partners at doubling distances",
  source: "Thakur, Rabenseifner and Gropp 2005",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => {
    const { dimensions, extras } = hypercubeOf(ranks);
    return {
      steps: dimensions + (extras > 0 ? 2 : 0),
      sentElements: (dimensions + (extras > 0 ? 1 : 0)) * count,
    };
  },
  order: (folds, { ranks }) => acrossHypercube(folds, ranks, "nearest"),
  symmetry: (ranks) => (hypercubeOf(ranks).extras === 0 ? "hypercube" : undefined),
  write: (program) => {
    const { ranks } = program;
    const cube = hypercubeOf(ranks);
    program.everyRank((lane, rank) => {
      const core = cube.coreOf(rank);
      if (core === undefined) return lane.send(input(0), rank - 1).recv(rank - 1, output(0));
      const extra = cube.extraOf(core);
      if (extra === undefined) lane.copy(input(0), output(0), { final: ranks === 1 });
      else lane.recvReduceCopy(extra, input(0), output(0));
      for (let bit = 1; bit < cube.cores; bit *= 2) {
        const partner = cube.rankOf(core ^ bit);
        const final = 2 * bit === cube.cores;
        lane.send(output(0), partner).recvReduceCopy(partner, output(0), output(0), { final });
      }
      return extra === undefined ? lane : lane.send(output(0), extra);
    });
  },
};
