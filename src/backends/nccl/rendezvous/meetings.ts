/**
 * Ranks of a generation that come together before they go on without the store: each waits for several meetings at once,
 * and all who are brought together are let go at the same moment.
 *
 * A rank that is let go may be blocked until those it has met are too. So nobody goes while one of them still waits for a
 * meeting that is not complete: the store itself may live in the process of a rank that is blocked.
 */
import type { Meeting } from "./rendezvous.ts";

/** One rank that waits. */
export interface Attendance {
  readonly rank: number;
  readonly id: number;
  readonly meetings: readonly Meeting[];
  readonly timer: NodeJS.Timeout;
}

/** Who waits for which meetings. */
export class Meetings {
  readonly #all = new Set<Attendance>();
  /** By key and rank. */
  readonly #there = new Map<string, Map<number, Attendance>>();

  /** A rank waits; gives all who may go now. */
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

  /** How many meetings a rank waits for. */
  heldBy(rank: number): number {
    return this.waiting((each) => each.rank === rank).reduce(
      (sum, { meetings }) => sum + meetings.length,
      0,
    );
  }

  /** Those who wait and are such. */
  waiting(which: (attendance: Attendance) => boolean): Attendance[] {
    return [...this.#all].filter(which);
  }

  /** Ranks that keep somebody waiting. */
  missing({ meetings }: Pick<Attendance, "meetings">): number[] {
    const missing = new Set<number>();
    for (const { key, ranks } of meetings) {
      const there = this.#there.get(key);
      for (const rank of ranks) if (there?.has(rank) !== true) missing.add(rank);
    }
    return [...missing].sort((a, b) => a - b);
  }

  /** One who waits and all whom its meetings bring along, directly or not; nobody while one of them lacks somebody. */
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
