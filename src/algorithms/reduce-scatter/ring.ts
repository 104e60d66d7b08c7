/**
 * Ring reduce-scatter: every block travels once round the ring to its owner and is folded on the way.
 *
 * Steps n−1 · elements sent per rank (n−1) · count: the least possible. Best for large buffers; serves the v-form too.
 * The block of rank d is folded from rank d+1 round to rank d: ((x[d+1] + x[d+2]) + …) + x[d].
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
 */
import type { Algorithm } from "../algorithm.ts";
import { along, roundRing } from "../association.ts";
import { input, output } from "../program.ts";

/** The first half of the ring all-reduce. */
export const ringReduceScatter: Algorithm = {
  name: "ring",
  summary: "folds every block once round the ring, ending at its owner",
  source: "Patarasuk and Yuan 2009; NCCL's Ring",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: (ranks - 1) * count }),
  order: (folds, { ranks, block }) => along(folds, roundRing(ranks, block)),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      if (ranks === 1) return lane.copy(input(0), output(0), { final: true });
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      lane.send(input(previous), next);
      lane.repeat(ranks - 2, (time) => {
        lane.recvReduceSend(previous, input((rank + ranks - 2 - time) % ranks), next);
      });
      return lane.recvReduceCopy(previous, input(rank), output(0), { final: true });
    });
  },
};
