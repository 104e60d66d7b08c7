/**
 * Pairwise all-to-all: in round k every rank sends to the rank k ahead and receives from the rank k behind.
 *
 * Steps n−1 · elements sent per rank (n−1) · count per peer: every block travels once, directly. Each round uses
 * every port once, so equal blocks never wait for each other.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Serves both all-to-all and all-to-allv: only the lengths of the blocks differ. */
export const pairwiseAllToAll: Algorithm = {
  name: "pairwise",
  summary: "in round k, sends to the rank k ahead and receives from the rank k behind",
  source: "Thakur, Rabenseifner and Gropp 2005",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: (ranks - 1) * count }),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      lane.copy(input(rank), output(rank));
      lane.repeat(ranks - 1, (time) => {
        const ahead = (rank + 1 + time) % ranks;
        const behind = (rank - 1 - time + ranks) % ranks;
        lane.send(input(ahead), ahead).recv(behind, output(behind));
      });
    });
  },
};
