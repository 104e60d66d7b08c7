/**
 * Direct scatter: the root sends every rank its block.
 *
 * Steps n−1 · the root sends (n−1) · count. The root's port is the limit, so nothing is faster for large blocks; blocks
 * may differ in length. NCCL does the same with grouped sends.
 * Source: the definition; NCCL's scatter.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Straight from the root, to the ranks after it first. */
export const directScatter: Algorithm = {
  name: "direct",
  summary: "sends every block straight from the root",
  source: "the definition; NCCL's grouped send and receive",
  credits: () => 0,
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: (ranks - 1) * count }),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      if (rank !== root) return lane.recv(root, output(0));
      lane.copy(input(root), output(0));
      for (let distance = 1; distance < ranks; distance++) {
        const peer = (root + distance) % ranks;
        lane.send(input(peer), peer);
      }
      return lane;
    });
  },
};
