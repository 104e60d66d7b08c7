/**
 * Ring all-reduce: chunks travel once round the ring to be folded and once more to be distributed.
 *
 * Steps 2(n−1) · elements sent per rank 2(n−1)/n · count: the least any all-reduce can send. Best for large buffers.
 * Chunk c is folded from rank c+1 round to rank c, its owner: ((x[c+1] + x[c+2]) + …) + x[c].
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
 */
import type { Algorithm } from "../algorithm.ts";
import { along, roundRing } from "../association.ts";
import { input, output } from "../program.ts";

/** The ring, in NCCL's primitives. */
export const ringAllReduce: Algorithm = {
  name: "ring",
  summary: "folds each chunk once round the ring, then distributes it round the ring",
  source: "Patarasuk and Yuan 2009; NCCL's Ring",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: (ranks) => ranks,
  cost: ({ ranks, count }) => ({
    steps: 2 * (ranks - 1),
    sentElements: (2 * (ranks - 1) * count) / ranks,
  }),
  order: (folds, { ranks, chunk }) => along(folds, roundRing(ranks, chunk)),
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      if (ranks === 1) return lane.copy(input(0), output(0), { final: true });
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      const chunk = (back: number): number => (rank + 2 * ranks - back) % ranks;

      lane.send(input(chunk(1)), next);
      lane.repeat(ranks - 2, (time) => {
        lane.recvReduceSend(previous, input(chunk(2 + time)), next);
      });
      lane.recvReduceCopySend(previous, input(rank), output(rank), next, { final: true });
      lane.repeat(ranks - 2, (time) => {
        lane.recvCopySend(previous, output(chunk(1 + time)), next);
      });
      return lane.recv(previous, output(chunk(ranks - 1)));
    });
  },
};
