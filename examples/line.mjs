/**
 * An all-reduce along the line of ranks, as docs/algorithms.md shows it: an algorithm that the command line can name.
 *
 *   npm run -s twinccl -- explain all-reduce --ranks 4 --algorithm examples/line.mjs
 */
import { along, input, output, roundRing } from "twinccl/algorithms";

const line = {
  name: "line",
  summary: "folds up the line of ranks, then hands the result back down",
  source: "docs/algorithms.md",
  chunksPerBlock: () => 1,
  credits: () => 0,
  cost: ({ ranks, count }) => ({
    steps: 2 * (ranks - 1),
    sentElements: Math.min(ranks - 1, 2) * count,
  }),
  // Rank 0 sends its contribution, every other rank folds in its own.
  order: (folds, { ranks }) => along(folds, roundRing(ranks, ranks - 1)),
  write: (program) => {
    const last = program.ranks - 1;
    program.everyRank((lane, rank) => {
      const [below, above] = [rank - 1, rank + 1];
      if (last === 0) lane.copy(input(0), output(0), { final: true });
      else if (rank === 0) lane.send(input(0), above).recv(above, output(0));
      else if (rank === last) {
        lane.recvReduceCopySend(below, input(0), output(0), below, { final: true });
      } else {
        lane.recvReduceSend(below, input(0), above).recvCopySend(above, output(0), below);
      }
    });
  },
};

export default line;
