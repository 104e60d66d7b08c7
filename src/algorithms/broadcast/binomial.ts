/**
 * Binomial broadcast: in every round each rank that has the data sends it to one that has not.
 *
 * Steps ⌈log₂ n⌉ · the root sends ⌈log₂ n⌉ · count. Best for small buffers.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
 */
import type { Algorithm } from "../algorithm.ts";
import { doublings } from "../powers.ts";
import { input, output } from "../program.ts";

/** A tree with children at the powers of two below a rank's lowest set bit, counted from the root. */
export const binomialBroadcast: Algorithm = {
  name: "binomial",
  summary: "doubles the ranks that have the data in every round",
  source: "Thakur, Rabenseifner and Gropp 2005",
  credits: () => 0,
  chunksPerBlock: () => 1,
  cost: ({ ranks, count }) => ({ steps: doublings(ranks), sentElements: doublings(ranks) * count }),
  write: (program) => {
    const { ranks, root } = program;
    program.everyRank((lane, rank) => {
      const place = (rank - root + ranks) % ranks;
      const peer = (other: number): number => (other + root) % ranks;
      let reach = 2 ** doublings(ranks);
      if (place === 0) lane.copy(input(0), output(0));
      else {
        reach = place & -place;
        lane.recv(peer(place - reach), output(0));
      }
      for (let bit = reach / 2; bit >= 1; bit /= 2) {
        if (place + bit < ranks) lane.send(output(0), peer(place + bit));
      }
    });
  },
};
