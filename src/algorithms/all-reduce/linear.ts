/**
 * Linear all-reduce: rank 0 folds all buffers in rank order and sends the result back to each rank.
 *
 * Steps 2(n−1) · rank 0 sends (n−1) · count. Slow on purpose: the plainest program that is right, kept as reference.
 * Every element is folded as ((x[0] + x[1]) + x[2]) + …, the order of a loop over ranks. Contributions arrive as
 * partials, so an average rounds every product before it is added.
 * Source: the definition of the collective.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Everything through rank 0. */
export const linearAllReduce: Algorithm = {
  name: "linear",
  summary: "rank 0 folds all buffers in rank order and sends the result to each rank",
  source: "the definition",
  credits: () => 0,
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({
    steps: 2 * (ranks - 1),
    sentElements: (ranks - 1) * count,
  }),
  order: (folds, { ranks }) => {
    let folded = folds.own(0);
    for (let rank = 1; rank < ranks; rank++) folded = folds.join(folded, folds.own(rank));
    return folded;
  },
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      if (rank > 0) return lane.send(input(0), 0).recv(0, output(0));
      lane.copy(input(0), output(0), { final: ranks === 1 });
      for (let peer = 1; peer < ranks; peer++) {
        lane.recvReduceCopy(peer, output(0), output(0), { final: peer === ranks - 1 });
      }
      for (let peer = 1; peer < ranks; peer++) lane.send(output(0), peer);
      return lane;
    });
  },
};
