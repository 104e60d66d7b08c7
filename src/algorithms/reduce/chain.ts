/**
 * Pipelined chain reduce: pieces flow along the chain of ranks to the root and are folded on the way.
 *
 * Steps n−2+m with m pieces · elements sent per rank count. Best for large buffers.
 * Every element is folded from the rank after the root: ((x[root+1] + x[root+2]) + …) + x[root].
 * Source: Pješivac-Grbović et al., "Performance analysis of MPI collective operations", 2007; NCCL's Ring reduce.
 */
import type { Algorithm } from "../algorithm.ts";
import { along, roundRing } from "../association.ts";
import { input, output } from "../program.ts";

/** Pieces that are under way at the same time. */
const pieces = 8;

/** root+1, root+2, …, root, in a pipeline. */
export const chainReduce: Algorithm = {
  name: "chain",
  summary: "folds pieces along the chain of ranks to the root",
  source: "Pješivac-Grbović et al. 2007; NCCL's Ring",
  credits: () => 0,
  chunksPerBlock: () => pieces,
  cost: ({ ranks, count }) => ({
    steps: ranks === 1 ? 0 : ranks - 2 + pieces,
    sentElements: ranks === 1 ? 0 : count,
  }),
  order: (folds, { ranks, root }) => along(folds, roundRing(ranks, root)),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      const place = (rank - root + ranks) % ranks;
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      for (let piece = 0; piece < pieces; piece++) {
        if (ranks === 1) lane.copy(input(piece), output(piece), { final: true });
        else if (place === 1) lane.send(input(piece), next);
        else if (place > 1) lane.recvReduceSend(previous, input(piece), next);
        else lane.recvReduceCopy(previous, input(piece), output(piece), { final: true });
      }
    });
  },
};
