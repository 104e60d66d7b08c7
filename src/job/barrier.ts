/**
 * Barriers of a generation. A rank waits at several at once, and all ranks of connected barriers are released together.
 *
 * A released rank may block its process until the other ranks of its barriers do the same. No rank is released while one of
 * them waits at an incomplete barrier, because the store itself may be in the process of a blocked rank.
 */
import type { Barrier } from "./rendezvous.ts";

/** The wait of one rank. */
export interface BarrierWait {
  readonly rank: number;
  readonly id: number;
  readonly barriers: readonly Barrier[];
  readonly timer: NodeJS.Timeout;
}

/** The waiting ranks, and their barriers. */
export class Barriers {
  readonly #all = new Set<BarrierWait>();
  /** By key and rank. */
  readonly #arrived = new Map<string, Map<number, BarrierWait>>();

  /** Adds a wait; returns the waits that are released by it. */
  arrive(wait: BarrierWait): readonly BarrierWait[] {
    this.#all.add(wait);
    for (const { key } of wait.barriers) {
      const there = this.#arrived.get(key) ?? new Map<number, BarrierWait>();
      this.#arrived.set(key, there.set(wait.rank, wait));
    }
    const together = this.#releasable(wait);
    for (const each of together) this.leave(each);
    return together;
  }

  /** Removes a wait. */
  leave(wait: BarrierWait): void {
    clearTimeout(wait.timer);
    this.#all.delete(wait);
    for (const { key } of wait.barriers) {
      const there = this.#arrived.get(key);
      if (there?.get(wait.rank) === wait) there.delete(wait.rank);
      if (there?.size === 0) this.#arrived.delete(key);
    }
  }

  /** Number of barriers at which a rank waits. */
  countOf(rank: number): number {
    return this.waiting((each) => each.rank === rank).reduce(
      (sum, { barriers }) => sum + barriers.length,
      0,
    );
  }

  /** Waits that fulfil a condition. */
  waiting(which: (wait: BarrierWait) => boolean): BarrierWait[] {
    return [...this.#all].filter(which);
  }

  /** Ranks that have not arrived. */
  missing({ barriers }: Pick<BarrierWait, "barriers">): number[] {
    const missing = new Set<number>();
    for (const { key, ranks } of barriers) {
      const there = this.#arrived.get(key);
      for (const rank of ranks) if (there?.has(rank) !== true) missing.add(rank);
    }
    return [...missing].sort((a, b) => a - b);
  }

  /** A wait and all waits that its barriers connect, directly or not; none while a rank is missing. */
  #releasable(first: BarrierWait): readonly BarrierWait[] {
    const together = new Set([first]);
    for (const { barriers } of together) {
      for (const { key, ranks } of barriers) {
        for (const rank of ranks) {
          const wait = this.#arrived.get(key)?.get(rank);
          if (wait === undefined) return [];
          together.add(wait);
        }
      }
    }
    return [...together];
  }
}
