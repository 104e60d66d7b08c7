/**
 * Bruck all-gather: the blocks of each rank double in every round, for any number of ranks.
 *
 * Steps ⌈log₂ n⌉ · elements sent per rank (n−1) · count. Best for small buffers. Blocks are collected in the order
 * rank, rank+1, … and rotated into place at the end.
 * Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
 */
import type { Algorithm } from "../algorithm.ts";
import { doublings } from "../powers.ts";
import { input, output, scratch } from "../program.ts";

/** Doubling runs of blocks, sent backwards. */
export const bruckAllGather: Algorithm = {
  name: "bruck",
  summary: "doubles the run of blocks that each rank has in every round",
  source: "Bruck et al. 1997",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  scratchChunks: (ranks) => ranks,
  cost: ({ ranks, count }) => ({ steps: doublings(ranks), sentElements: (ranks - 1) * count }),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      lane.copy(input(0), scratch(0));
      for (let collected = 1; collected < ranks; collected *= 2) {
        const span = Math.min(collected, ranks - collected);
        lane.send(scratch(0), (rank - collected + ranks) % ranks, { span });
        lane.recv((rank + collected) % ranks, scratch(collected), { span });
      }
      lane.copy(scratch(0), output(rank), { span: ranks - rank });
      if (rank > 0) lane.copy(scratch(ranks - rank), output(0), { span: rank });
    });
  },
};
