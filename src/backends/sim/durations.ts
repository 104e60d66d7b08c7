/** Predicted times of calls: evaluated once for ranks that start together, which is what repeated calls do. */
import {
  evaluate,
  type Layout,
  type Link,
  linkModel,
  type Program,
} from "../../algorithms/index.ts";
import type { RankCall } from "../../api/index.ts";

/** Durations by rank, by bytes per element. */
type KnownDurations = Map<number, Float64Array>;

/** Predicts when each rank of a call is done. */
export class Durations {
  readonly #link: Link;
  readonly #known = new WeakMap<Program, WeakMap<Layout, KnownDurations>>();

  constructor(link: Link) {
    this.#link = link;
  }

  /** Moves `finishedAtPs` of every call from the rank's start to its end. */
  predict(calls: readonly RankCall[], program: Program, layout: Layout, bytes: number): void {
    const start = calls[0]?.finishedAtPs ?? 0;
    if (calls.some((call) => call.finishedAtPs !== start)) {
      const starts = calls.map((call) => call.finishedAtPs);
      const { finished } = evaluate(program, layout, starts, linkModel(this.#link, bytes));
      for (const call of calls) call.finishedAtPs = finished[call.rank] as number;
      return;
    }
    const durations = this.#together(program, layout, bytes);
    for (const call of calls) call.finishedAtPs = start + (durations[call.rank] as number);
  }

  /** Durations of ranks that start at the same time; the recurrence only adds and compares, so they are the same at any. */
  #together(program: Program, layout: Layout, bytes: number): Float64Array {
    let layouts = this.#known.get(program);
    if (layouts === undefined) {
      layouts = new WeakMap();
      this.#known.set(program, layouts);
    }
    let known = layouts.get(layout);
    if (known === undefined) {
      known = new Map();
      layouts.set(layout, known);
    }
    let durations = known.get(bytes);
    if (durations === undefined) {
      const starts = new Float64Array(program.ranks);
      durations = evaluate(program, layout, starts, linkModel(this.#link, bytes)).finished;
      known.set(bytes, durations);
    }
    return durations;
  }
}
