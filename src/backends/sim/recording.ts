/** A recording on the simulation: calls that a replay does one after another, and when its ranks were done the last time. */
import type { CallSet, RankCall } from "../../api/index.ts";
import type { BoundCall } from "./executor.ts";

/** Recorded calls of all ranks; what is worked out for one of them stays with it. */
export class Recording {
  readonly sets: readonly CallSet[];
  /** The executor's work for all calls; known from the first replay on, where it is the same each time. */
  bound: readonly BoundCall[] | undefined;
  /** By rank, from the first rank's replay on: when it was made, when its calls could begin, and when they were done. */
  readonly #posted: Float64Array;
  readonly #began: Float64Array;
  readonly #ended: Float64Array;

  constructor(sets: readonly CallSet[]) {
    const ranks = sets[0]?.calls.length ?? 0;
    this.sets = sets;
    this.#posted = new Float64Array(ranks).fill(Number.NaN);
    this.#began = new Float64Array(ranks);
    this.#ended = new Float64Array(ranks);
  }

  /**
   * Moves `finishedAtPs` of every rank's replay from where its calls can begin to where they are done, if ranks begin as far
   * apart as they did the last time: times are only added and compared, so they end as far apart too.
   */
  foretell(replays: readonly RankCall[]): boolean {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      if (this.#posted[i] !== postedAtPs - firstPs) return false;
      if (this.#began[i] !== finishedAtPs - firstPs) return false;
    }
    for (let i = 0; i < replays.length; i++) {
      (replays[i] as RankCall).finishedAtPs = firstPs + (this.#ended[i] as number);
    }
    return true;
  }

  /** Notes when the ranks of a replay were done, for calls that could begin at these times, by rank. */
  note(replays: readonly RankCall[], beganPs: readonly number[]): void {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      this.#posted[i] = postedAtPs - firstPs;
      this.#began[i] = (beganPs[i] as number) - firstPs;
      this.#ended[i] = finishedAtPs - firstPs;
    }
  }
}

function first(replays: readonly RankCall[]): number {
  let firstPs = Infinity;
  for (const { postedAtPs } of replays) firstPs = Math.min(firstPs, postedAtPs);
  return firstPs;
}
