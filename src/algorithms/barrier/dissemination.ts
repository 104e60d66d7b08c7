/**
 * Dissemination barrier: in round k every rank signals the rank 2^k ahead.
 *
 * Steps ⌈log₂ n⌉ · no elements. After the last round a signal of every rank has reached, directly or not, every other.
 * Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.
 */
import type { Algorithm } from "../algorithm.ts";
import { doublings } from "../powers.ts";

/** Signals at distances 1, 2, 4, … around the ring. */
export const disseminationBarrier: Algorithm = {
  name: "dissemination",
  summary: "signals at doubling distances until every rank has heard of every other",
  source: "Hensgen, Finkel and Manber 1988",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  cost: ({ ranks }) => ({ steps: doublings(ranks), sentElements: 0 }),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      for (let distance = 1; distance < ranks; distance *= 2) {
        lane.signal((rank + distance) % ranks).wait((rank - distance + ranks) % ranks);
      }
    });
  },
};
