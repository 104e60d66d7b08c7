/**
 * Ranks of a generation that meet before they go on without the store: each waits for several barriers at once,
 * and all ranks of connected barriers are released at the same moment.
 *
 * A released rank may be blocked until those that it has met are too. So no rank is released while one of them still waits for an
 * incomplete barrier: the store itself may live in the process of a blocked rank.
 */
import type { Barrier } from "./rendezvous.ts";

/** One rank that waits. */
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

  /** A rank waits; returns all ranks that may go now. */
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

  /** A rank waits no longer. */
  leave(wait: BarrierWait): void {
    clearTimeout(wait.timer);
    this.#all.delete(wait);
    for (const { key } of wait.barriers) {
      const there = this.#arrived.get(key);
      if (there?.get(wait.rank) === wait) there.delete(wait.rank);
      if (there?.size === 0) this.#arrived.delete(key);
    }
  }

  /** Number of barriers that a rank waits for. */
  countOf(rank: number): number {
    return this.waiting((each) => each.rank === rank).reduce(
      (sum, { barriers }) => sum + barriers.length,
      0,
    );
  }

  /** Waiting ranks with a property. */
  waiting(which: (wait: BarrierWait) => boolean): BarrierWait[] {
    return [...this.#all].filter(which);
  }

  /** Ranks that keep others waiting. */
  missing({ barriers }: Pick<BarrierWait, "barriers">): number[] {
    const missing = new Set<number>();
    for (const { key, ranks } of barriers) {
      const there = this.#arrived.get(key);
      for (const rank of ranks) if (there?.has(rank) !== true) missing.add(rank);
    }
    return [...missing].sort((a, b) => a - b);
  }

  /** One waiting rank and all ranks that its barriers connect, directly or not; none while one of them lacks a rank. */
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
