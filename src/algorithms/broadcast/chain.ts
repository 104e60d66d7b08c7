/**
 * Pipelined chain broadcast: pieces flow from the root along the chain of ranks.
 *
 * Steps n−2+m with m pieces · elements sent per rank count. Best for large buffers.
 * Source: Pješivac-Grbović et al., "Performance analysis of MPI collective operations", 2007; NCCL's Ring broadcast.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Pieces that are under way at the same time. */
const pieces = 8;

/** root, root+1, …, in a pipeline. */
export const chainBroadcast: Algorithm = {
  name: "chain",
  summary: "lets pieces flow from the root along the chain of ranks",
  source: "Pješivac-Grbović et al. 2007; NCCL's Ring",
  credits: () => 0,
  chunksPerBlock: () => pieces,
  cost: ({ ranks, count }) => ({
    steps: ranks === 1 ? 0 : ranks - 2 + pieces,
    sentElements: ranks === 1 ? 0 : count,
  }),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      const place = (rank - root + ranks) % ranks;
      const next = (rank + 1) % ranks;
      const previous = (rank + ranks - 1) % ranks;
      for (let piece = 0; piece < pieces; piece++) {
        if (place === 0) {
          lane.copy(input(piece), output(piece));
          if (ranks > 1) lane.send(output(piece), next);
        } else if (place < ranks - 1) lane.recvCopySend(previous, output(piece), next);
        else lane.recv(previous, output(piece));
      }
    });
  },
};
