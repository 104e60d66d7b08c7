/**
 * Bruck all-to-all: a block moves 2^k ranks ahead in round k when bit k of its distance is set.
 *
 * Steps ⌈log₂ n⌉ · elements sent per rank Σ_k #{i < n : bit k of i} · count, about n/2 · log₂ n. Best for tiny blocks
 * on many ranks. Blocks that travel together are packed into one message.
 * Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
 */
import type { Algorithm } from "../algorithm.ts";
import type { Lane } from "../builder.ts";
import { doublings } from "../powers.ts";
import { input, output, scratch } from "../program.ts";

/** Few messages, more bytes. Blocks must be of equal length. */
export const bruckAllToAll: Algorithm = {
  name: "bruck",
  summary: "moves packed blocks by the bits of their distance",
  source: "Bruck et al. 1997",
  credits: (ranks) => (ranks === 1 ? 0 : 1),
  chunksPerBlock: () => 1,
  scratchChunks: (ranks) => 2 * ranks,
  cost: ({ ranks, count }) => {
    let blocks = 0;
    for (let bit = 1; bit < ranks; bit *= 2) blocks += movedCount(ranks, bit);
    return { steps: doublings(ranks), sentElements: blocks * count };
  },
  symmetry: () => "rotation",
  write: (program) => {
    const { ranks } = program;
    program.everyRank((lane, rank) => {
      // Scratch i holds the block for the rank i ahead; the pack follows after all of them.
      lane.copy(input(rank), scratch(0), { span: ranks - rank });
      if (rank > 0) lane.copy(input(0), scratch(ranks - rank), { span: rank });
      for (let bit = 1; bit < ranks; bit *= 2) forwardBlocks(lane, rank, ranks, bit);
      lane.repeat(ranks, (distance) => {
        lane.copy(scratch(distance), output((rank - distance + ranks) % ranks));
      });
    });
  },
};

/** Packs the blocks that have the bit in their distance, sends them that far, and stores the received ones in their place. */
function forwardBlocks(lane: Lane, rank: number, ranks: number, bit: number): void {
  const span = movedCount(ranks, bit);
  const pack = (index: number): number => scratch(ranks + index);
  lane.repeat(span, (index) => {
    lane.copy(scratch(movedBlock(index, bit)), pack(index));
  });
  lane.send(pack(0), (rank + bit) % ranks, { span });
  lane.recv((rank - bit + ranks) % ranks, pack(0), { span });
  lane.repeat(span, (index) => {
    lane.copy(pack(index), scratch(movedBlock(index, bit)));
  });
}

/** Number of distances below n that have the bit. */
function movedCount(ranks: number, bit: number): number {
  const rest = ranks % (2 * bit);
  return (ranks - rest) / 2 + Math.max(0, rest - bit);
}

/** The distance at an index among those that have the bit. */
function movedBlock(index: number, bit: number): number {
  return 2 * (index - (index % bit)) + bit + (index % bit);
}
