/** The order in which ranks with settled operations resume: `sim({ schedule })`. */
import { EventQueue } from "../../algorithms/engine/event-queue.ts";
import type { Schedule, VirtualClock } from "../../api/index.ts";
import { purpose, randomBelow } from "./random.ts";

/** One of the schedules. */
export type ScheduleName = "fair" | "random" | "virtual-time";

/** Names of the schedules. */
export const scheduleNames: readonly ScheduleName[] = ["fair", "random", "virtual-time"];

/** A schedule that is notified of every run. */
export interface RunSchedule extends Schedule {
  /** Run number `run` of the session begins, counted from 0. */
  begin(run: number): void;
}

/** The schedule of that name; `undefined` for `fair`, which resumes all ranks of a call at once, in the order of the seed. */
export function scheduleOf(
  name: ScheduleName,
  seed: number,
  clock: VirtualClock,
): RunSchedule | undefined {
  if (name === "random") return new RandomSchedule(seed);
  return name === "virtual-time" ? new VirtualTimeSchedule(clock) : undefined;
}

/** Picks among all ready ranks with equal probability. */
class RandomSchedule implements RunSchedule {
  readonly #seed: number;
  readonly #ready: number[] = [];
  #run = 0;
  #step = 0;

  constructor(seed: number) {
    this.#seed = seed;
  }

  begin(run: number): void {
    this.#run = run;
    this.#step = 0;
  }

  add(rank: number): void {
    this.#ready.push(rank);
  }

  next(): number {
    const ready = this.#ready;
    const at = randomBelow(ready.length, this.#seed, purpose.resume, this.#run, this.#step++);
    const rank = ready[at] as number;
    const last = ready.pop() as number;
    if (at < ready.length) ready[at] = last;
    return rank;
  }
}

/** Picks the ready rank with the least time on its clock; of several, the one that has been ready for longest. */
class VirtualTimeSchedule implements RunSchedule {
  readonly #clock: VirtualClock;
  readonly #ready = new EventQueue();

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  begin(): void {
    // Nothing depends on the number of the run.
  }

  add(rank: number): void {
    this.#ready.push(rank, this.#clock.now(rank));
  }

  next(): number {
    for (;;) {
      const rank = this.#ready.pop() as number;
      const now = this.#clock.now(rank);
      if (now <= this.#ready.time) return rank;
      // Its clock has moved on since it became ready.
      this.#ready.push(rank, now);
    }
  }
}
