/**
 * Direct gather: every rank sends its block straight to the root.
 *
 * Steps n−1 · elements sent per rank count. The root's port is the limit, so nothing is faster for large blocks; blocks
 * may differ in length. NCCL does the same with grouped sends.
 * Source: the definition; NCCL's gather.
 */
import type { Algorithm } from "../algorithm.ts";
import { input, output } from "../program.ts";

/** Straight to the root, which takes the ranks after it first. */
export const directGather: Algorithm = {
  name: "direct",
  summary: "sends every block straight to the root",
  source: "the definition; NCCL's grouped send and receive",
  credits: () => 0,
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: ranks === 1 ? 0 : count }),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      if (rank !== root) return lane.send(input(0), root);
      lane.copy(input(0), output(root));
      for (let distance = 1; distance < ranks; distance++) {
        const peer = (root + distance) % ranks;
        lane.recv(peer, output(peer));
      }
      return lane;
    });
  },
};
