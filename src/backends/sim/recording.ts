/** Recorded calls: the work of a replay, and its times while its ranks start at the same distances. */
import type { CallSet, RankCall } from "../../api/backend-entry.ts";
import type { BoundCall } from "./executor.ts";

/** Recorded calls of all ranks; derived data is cached with each of them. */
export class Recording {
  readonly sets: readonly CallSet[];
  /** The executor's work for all calls, from the first replay on. */
  bound: readonly BoundCall[] = [];
  /**
   * By rank, from the first rank's replay on: the times of the replay, of the first possible start of its calls, and of their
   * end.
   */
  readonly #postedAtPs: Float64Array;
  readonly #startedAtPs: Float64Array;
  readonly #finishedAtPs: Float64Array;

  constructor(sets: readonly CallSet[]) {
    const ranks = sets[0]?.calls.length ?? 0;
    this.sets = sets;
    this.#postedAtPs = new Float64Array(ranks).fill(Number.NaN);
    this.#startedAtPs = new Float64Array(ranks);
    this.#finishedAtPs = new Float64Array(ranks);
  }

  /**
   * Advances `finishedAtPs` of every rank's replay from the start to the end of its calls. Requires the ranks' starts to have
   * the same distances as last time. Times are only added and compared, so that the ends have the same distances too.
   */
  predictEnds(replays: readonly RankCall[]): boolean {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      if (this.#postedAtPs[i] !== postedAtPs - firstPs) return false;
      if (this.#startedAtPs[i] !== finishedAtPs - firstPs) return false;
    }
    for (let i = 0; i < replays.length; i++) {
      (replays[i] as RankCall).finishedAtPs = firstPs + (this.#finishedAtPs[i] as number);
    }
    return true;
  }

  /** Stores the end times of a replay's ranks, for calls that could begin at these times, by rank. */
  recordEnds(replays: readonly RankCall[], beganPs: readonly number[]): void {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      this.#postedAtPs[i] = postedAtPs - firstPs;
      this.#startedAtPs[i] = (beganPs[i] as number) - firstPs;
      this.#finishedAtPs[i] = finishedAtPs - firstPs;
    }
  }
}

function first(replays: readonly RankCall[]): number {
  let firstPs = Infinity;
  for (const { postedAtPs } of replays) firstPs = Math.min(firstPs, postedAtPs);
  return firstPs;
}
