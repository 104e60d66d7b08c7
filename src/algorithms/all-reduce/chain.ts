/**
 * Chain all-reduce: pieces flow down the chain n−1, …, 1, 0 to be folded, and back up to be distributed.
 *
 * Steps 2(n−2+m) with m pieces · elements sent per rank 2 · count. NCCL's Tree inside one node is this chain.
 * Every element is folded from the far end: ((x[n−1] + x[n−2]) + …) + x[0].
 * Source: NCCL's Tree on a single node; Pješivac-Grbović et al., "Performance analysis of MPI collective operations",
 * 2007, for pipelined chains.
 */
import type { Algorithm } from "../algorithm.ts";
import { along, roundRing } from "../association.ts";
import { input, output } from "../program.ts";

/** Pieces that are under way at the same time. */
const pieces = 4;

/** A chain of ranks, in a pipeline. */
export const chainAllReduce: Algorithm = {
  name: "chain",
  summary: "folds pieces down a chain of ranks to rank 0, then hands them out back up",
  source: "NCCL's Tree on one node; Pješivac-Grbović et al. 2007",
  credits: () => 0,
  chunksPerBlock: () => pieces,
  cost: ({ ranks, count }) => ({
    steps: ranks === 1 ? 0 : 2 * (ranks - 2 + pieces),
    sentElements: ranks === 1 ? 0 : (ranks === 2 ? 1 : 2) * count,
  }),
  order: (folds, { ranks }) => along(folds, roundRing(ranks, ranks - 1).toReversed()),
  write: (program) => {
    const last = program.ranks - 1;
    program.everyRank((lane, rank) => {
      for (let piece = 0; piece < pieces; piece++) {
        if (last === 0) lane.copy(input(piece), output(piece), { final: true });
        else if (rank === last) lane.send(input(piece), rank - 1);
        else if (rank > 0) lane.recvReduceSend(rank + 1, input(piece), rank - 1);
        else lane.recvReduceCopy(1, input(piece), output(piece), { final: true });
      }
      for (let piece = 0; piece < pieces && last > 0; piece++) {
        if (rank === 0) lane.send(output(piece), 1);
        else if (rank < last) lane.recvCopySend(rank - 1, output(piece), rank + 1);
        else lane.recv(rank - 1, output(piece));
      }
    });
  },
};
