/** Powers of two among rank counts, as the hypercube algorithms need them. */

import { assertInteger } from "./arguments.ts";

/** Most ranks: `Math.clz32` counts in 32 bits. */
const maxRanks = 2 ** 31;

/** ⌈log₂ n⌉: rounds in which doubling reaches n ranks. */
export function doublings(ranks: number): number {
  assertInteger("doublings", "ranks", ranks, 0, maxRanks);
  return ranks <= 1 ? 0 : 32 - Math.clz32(ranks - 1);
}

/** The largest power of two up to n. */
export function powerBelow(ranks: number): number {
  assertInteger("powerBelow", "ranks", ranks, 1, maxRanks);
  return 2 ** (31 - Math.clz32(ranks));
}

/**
 * Mapping of n ranks onto a hypercube of 2^k *cores*. Of the first pairs of neighbours one rank each is a core; all
 * other ranks are cores themselves. Cores are numbered in the order of the ranks that they represent.
 */
export interface Hypercube {
  readonly cores: number;
  /** Dimensions: cores = 2^dimensions. */
  readonly dimensions: number;
  /** Ranks beyond the cores. */
  readonly extras: number;
  /** Rank of a core. */
  rankOf(core: number): number;
  /** The second rank that a core represents; `undefined` for most. */
  extraOf(core: number): number | undefined;
  /** Core number of a rank; `undefined` for an extra rank. */
  coreOf(rank: number): number | undefined;
}

/** Maps ranks onto a hypercube. */
export function hypercubeOf(ranks: number): Hypercube {
  assertInteger("hypercubeOf", "ranks", ranks, 1, maxRanks);
  const cores = powerBelow(ranks);
  const extras = ranks - cores;
  return {
    cores,
    dimensions: doublings(cores),
    extras,
    rankOf: (core) => (core < extras ? 2 * core : core + extras),
    extraOf: (core) => (core < extras ? 2 * core + 1 : undefined),
    coreOf: (rank) => {
      if (rank >= 2 * extras) return rank - extras;
      return rank % 2 === 0 ? rank / 2 : undefined;
    },
  };
}
