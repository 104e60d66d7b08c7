/**
 * Ring all-gather: every block travels once round the ring.
 *
 * Steps n−1 · elements sent per rank (n−1) · count: the least possible. Best for large buffers; serves the v-form too.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Each rank forwards the block that it received last. */
export const ringAllGather: Algorithm = {
  name: "ring",
  summary: "passes every block once round the ring",
  source: "Thakur, Rabenseifner and Gropp 2005; NCCL's Ring",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: (ranks - 1) * count }),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      lane.copy(input(0), output(rank));
      if (ranks === 1) return;
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      lane.send(output(rank), next);
      lane.repeat(ranks - 2, (time) => {
        lane.recvCopySend(previous, output((rank + ranks - 1 - time) % ranks), next);
      });
      lane.recv(previous, output(next));
    });
  },
};
