/** Predicted times of calls: evaluated once for ranks that start as far apart as before, which is what repeated calls do. */
import {
  evaluate,
  type Layout,
  type Link,
  type LinkModel,
  linkModel,
  type Program,
} from "../../algorithms/index.ts";
import type { RankCall } from "../../api/index.ts";

/** When the ranks of a call are done, from when they start. */
export class CallTimes {
  readonly #program: Program;
  readonly #layout: Layout;
  readonly #model: LinkModel;
  /** Starts by rank, counted from the first of them. NaN until something is known. */
  readonly #starts: Float64Array;
  /** Ends by rank, counted from the first start. */
  #ends: Float64Array;

  constructor(program: Program, layout: Layout, model: LinkModel) {
    this.#program = program;
    this.#layout = layout;
    this.#model = model;
    this.#starts = new Float64Array(program.ranks).fill(Number.NaN);
    this.#ends = this.#starts;
  }

  /** Moves `finishedAtPs` of every call, given by rank, from the rank's start to its end. */
  predict(calls: readonly RankCall[]): void {
    let firstPs = Infinity;
    for (const { finishedAtPs } of calls) firstPs = Math.min(firstPs, finishedAtPs);
    const starts = this.#starts;
    let known = true;
    for (let i = 0; i < calls.length; i++) {
      const start = (calls[i] as RankCall).finishedAtPs - firstPs;
      if (starts[i] === start) continue;
      starts[i] = start;
      known = false;
    }
    // The recurrence only adds and compares integers: it gives the same at any time.
    if (!known) {
      this.#ends = evaluate(this.#program, this.#layout, starts, this.#model).finished;
    }
    for (const call of calls) call.finishedAtPs = firstPs + (this.#ends[call.rank] as number);
  }
}

/** Predicts when each rank of a call is done. */
export class Durations {
  readonly #link: Link;
  /** By program, layout and bytes per element. */
  readonly #known = new WeakMap<Program, WeakMap<Layout, Map<number, CallTimes>>>();

  constructor(link: Link) {
    this.#link = link;
  }

  /** The times of calls that are done by a program, with so many bytes per element. */
  of(program: Program, layout: Layout, bytes: number): CallTimes {
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
    let times = known.get(bytes);
    if (times === undefined) {
      times = new CallTimes(program, layout, linkModel(this.#link, bytes));
      known.set(bytes, times);
    }
    return times;
  }
}
