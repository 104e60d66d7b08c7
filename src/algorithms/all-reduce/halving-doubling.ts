/**
 * Halving-doubling all-reduce: a reduce-scatter by recursive halving, then an all-gather by recursive doubling.
 *
 * Steps 2⌊log₂ n⌋, and 2 more when n is no power of two · elements sent per rank 2(p−1)/p · count with p = 2^⌊log₂ n⌋
 * (one count more by ranks that represent another). Best for medium buffers.
 * Each chunk is folded by partners half of the hypercube apart, then a quarter, …: ((x0 + x4) + (x2 + x6)) + …
 * Source: Rabenseifner, "Optimization of collective reduction operations", 2004.
 */
import type { Algorithm } from "../algorithm.ts";
import { acrossHypercube } from "../association.ts";
import type { Lane } from "../builder.ts";
import { type Hypercube, hypercubeOf } from "../powers.ts";
import { input, output } from "../program.ts";

/** Halves of halves across a hypercube, then the reverse. */
export const halvingDoublingAllReduce: Algorithm = {
  name: "halving-doubling",
  summary: "folds by exchanging halves of halves, then gathers the same way back",
  source: "Rabenseifner 2004",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: (ranks) => hypercubeOf(ranks).cores,
  cost: ({ ranks, count }) => {
    const { cores, dimensions, extras } = hypercubeOf(ranks);
    const fold = (2 * (cores - 1) * count) / cores;
    return {
      steps: 2 * dimensions + (extras > 0 ? 2 : 0),
      sentElements: fold + (extras > 0 ? count : 0),
    };
  },
  order: (folds, { ranks }) => acrossHypercube(folds, ranks, "farthest"),
  symmetry: (ranks) => (hypercubeOf(ranks).extras === 0 ? "hypercube" : undefined),
  write: (program) => {
    const { ranks } = program;
    const cube = hypercubeOf(ranks);
    const whole = { span: cube.cores };
    program.everyRank((lane, rank) => {
      const core = cube.coreOf(rank);
      if (core === undefined) {
        return lane.send(input(0), rank - 1, whole).recv(rank - 1, output(0), whole);
      }
      const extra = cube.extraOf(core);
      if (extra === undefined) lane.copy(input(0), output(0), { ...whole, final: ranks === 1 });
      else lane.recvReduceCopy(extra, input(0), output(0), whole);
      halve(lane, cube, core);
      double(lane, cube, core);
      return extra === undefined ? lane : lane.send(output(0), extra, whole);
    });
  },
};

/** Keeps the half of the chunks that the core belongs to, and sends the other half, in every round. */
function halve(lane: Lane, cube: Hypercube, core: number): void {
  for (let span = cube.cores / 2; span >= 1; span /= 2) {
    const partner = core ^ span;
    const kept = output(Math.floor(core / span) * span);
    const sent = output(Math.floor(partner / span) * span);
    const peer = cube.rankOf(partner);
    lane.send(sent, peer, { span });
    lane.recvReduceCopy(peer, kept, kept, { span, final: span === 1 });
  }
}

/** Gathers the chunks back, doubling what each core has in every round. */
function double(lane: Lane, cube: Hypercube, core: number): void {
  for (let span = 1; span < cube.cores; span *= 2) {
    const partner = core ^ span;
    const peer = cube.rankOf(partner);
    lane.send(output(Math.floor(core / span) * span), peer, { span });
    lane.recv(peer, output(Math.floor(partner / span) * span), { span });
  }
}
