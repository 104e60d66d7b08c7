/**
 * Ranks of a generation that meet before they go on without the store: each waits for several meetings at once,
 * and all ranks of connected meetings are released at the same moment.
 *
 * A released rank may be blocked until those that it has met are too. So no rank is released while one of them still waits for an
 * incomplete meeting: the store itself may live in the process of a blocked rank.
 */
import type { Meeting } from "./rendezvous.ts";

/** One rank that waits. */
export interface Attendance {
  readonly rank: number;
  readonly id: number;
  readonly meetings: readonly Meeting[];
  readonly timer: NodeJS.Timeout;
}

/** The waiting ranks, and their meetings. */
export class Meetings {
  readonly #all = new Set<Attendance>();
  /** By key and rank. */
  readonly #there = new Map<string, Map<number, Attendance>>();

  /** A rank waits; returns all ranks that may go now. */
  come(attendance: Attendance): readonly Attendance[] {
    this.#all.add(attendance);
    for (const { key } of attendance.meetings) {
      const there = this.#there.get(key) ?? new Map<number, Attendance>();
      this.#there.set(key, there.set(attendance.rank, attendance));
    }
    const together = this.#broughtTogether(attendance);
    for (const each of together) this.go(each);
    return together;
  }

  /** A rank waits no longer. */
  go(attendance: Attendance): void {
    clearTimeout(attendance.timer);
    this.#all.delete(attendance);
    for (const { key } of attendance.meetings) {
      const there = this.#there.get(key);
      if (there?.get(attendance.rank) === attendance) there.delete(attendance.rank);
      if (there?.size === 0) this.#there.delete(key);
    }
  }

  /** Number of meetings that a rank waits for. */
  heldBy(rank: number): number {
    return this.waiting((each) => each.rank === rank).reduce(
      (sum, { meetings }) => sum + meetings.length,
      0,
    );
  }

  /** Waiting ranks with a property. */
  waiting(which: (attendance: Attendance) => boolean): Attendance[] {
    return [...this.#all].filter(which);
  }

  /** Ranks that keep others waiting. */
  missing({ meetings }: Pick<Attendance, "meetings">): number[] {
    const missing = new Set<number>();
    for (const { key, ranks } of meetings) {
      const there = this.#there.get(key);
      for (const rank of ranks) if (there?.has(rank) !== true) missing.add(rank);
    }
    return [...missing].sort((a, b) => a - b);
  }

  /** One waiting rank and all ranks that its meetings connect, directly or not; none while one of them lacks a rank. */
  #broughtTogether(first: Attendance): readonly Attendance[] {
    const together = new Set([first]);
    for (const { meetings } of together) {
      for (const { key, ranks } of meetings) {
        for (const rank of ranks) {
          const attendance = this.#there.get(key)?.get(rank);
          if (attendance === undefined) return [];
          together.add(attendance);
        }
      }
    }
    return [...together];
  }
}
