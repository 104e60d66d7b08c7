/**
 * Recursive halving reduce-scatter: in every round a rank sends half of its blocks and folds the other half.
 *
 * Steps ⌊log₂ n⌋, and 2 more when n is no power of two · elements sent per rank (n−1) · count (n · count by ranks that
 * another one represents). Best for small and medium buffers.
 * Each block is folded by partners half of the hypercube apart, then a quarter, …: ((x0 + x4) + (x2 + x6)) + …
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import { acrossHypercube } from "../association.ts";
import type { Lane } from "../builder.ts";
import { type Hypercube, hypercubeOf } from "../powers.ts";
import { input, output, scratch } from "../program.ts";

/** Halves of halves across a hypercube. */
export const recursiveHalvingReduceScatter: Algorithm = {
  name: "recursive-halving",
  summary: "folds by exchanging halves of halves of the blocks",
  source: "Thakur, Rabenseifner and Gropp 2005",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  scratchChunks: (ranks) => ranks,
  cost: ({ ranks, count }) => {
    const { dimensions, extras } = hypercubeOf(ranks);
    return {
      steps: dimensions + (extras > 0 ? 2 : 0),
      sentElements: (extras > 0 ? ranks : ranks - 1) * count,
    };
  },
  order: (folds, { ranks }) => acrossHypercube(folds, ranks, "farthest"),
  symmetry: (ranks) => (hypercubeOf(ranks).extras === 0 ? "hypercube" : undefined),
  write: (program) => {
    const { ranks } = program;
    const cube = hypercubeOf(ranks);
    const whole = { span: ranks };
    program.everyRank((lane, rank) => {
      const core = cube.coreOf(rank);
      if (core === undefined) return lane.send(input(0), rank - 1, whole).recv(rank - 1, output(0));
      const extra = cube.extraOf(core);
      if (extra === undefined) lane.copy(input(0), scratch(0), whole);
      else lane.recvReduceCopy(extra, input(0), scratch(0), whole);
      halve(lane, cube, core, ranks);
      lane.copy(scratch(rank), output(0), { final: true });
      return extra === undefined ? lane : lane.send(scratch(extra), extra, { final: true });
    });
  },
};

/** Sends the partner's blocks and folds its own, in every round. */
function halve(lane: Lane, cube: Hypercube, core: number, ranks: number): void {
  const firstBlock = (group: number): number => (group < cube.cores ? cube.rankOf(group) : ranks);
  for (let half = cube.cores / 2; half >= 1; half /= 2) {
    const partner = core ^ half;
    const peer = cube.rankOf(partner);
    const blocks = (group: number): { first: number; span: number } => {
      const begin = Math.floor(group / half) * half;
      const first = firstBlock(begin);
      return { first, span: firstBlock(begin + half) - first };
    };
    const sent = blocks(partner);
    const kept = blocks(core);
    lane.send(scratch(sent.first), peer, { span: sent.span });
    lane.recvReduceCopy(peer, scratch(kept.first), scratch(kept.first), { span: kept.span });
  }
}
