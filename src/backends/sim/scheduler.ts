/**
 * Virtual time of ranks, in integer picoseconds: one clock a rank, and the order in which ranks with settled operations resume,
 * `sim({ schedule })`.
 *
 * A seed fixes every random choice. Each choice has a key for its purpose, and none is drawn from a shared stream, so that
 * omitting one does not shift the others.
 */
import { EventQueue } from "../../algorithms/engine/event-queue.ts";
import type { CallSet, Schedule, Scheduler, VirtualClock } from "../../api/backend-entry.ts";
import { mix32 } from "../../api/bits.ts";
import { largest } from "../../api/largest.ts";
import type { StreamTimes } from "./call-times.ts";
import type { WorldTrace } from "./trace/trace.ts";

/** The clocks of all ranks of a world. */
export class SimClock implements VirtualClock {
  readonly #now: Float64Array;
  readonly #streams: StreamTimes;
  readonly #trace: WorldTrace | undefined;

  constructor(size: number, streams: StreamTimes, trace: WorldTrace | undefined) {
    this.#streams = streams;
    this.#now = new Float64Array(size);
    this.#trace = trace;
  }

  now(rank: number): number {
    return this.#now[rank] as number;
  }

  reach(rank: number, timePs: number): void {
    if (timePs > (this.#now[rank] as number)) this.#now[rank] = timePs;
  }

  work(rank: number, durationNs: number, label: string | undefined): void {
    const start = this.now(rank);
    const end = start + Math.round(durationNs * 1000);
    this.#now[rank] = end;
    this.#trace?.work(rank, start, end, label);
  }

  join({ comm, calls }: CallSet): void {
    this.#streams.begin(comm, calls);
    const lastPs = largest(calls.map(({ finishedAtPs }) => finishedAtPs));
    for (const call of calls) call.finishedAtPs = lastPs;
    this.#streams.end(comm, calls);
  }
}

/** One of the schedules. */
export type ScheduleName = "fair" | "random" | "virtual-time";

/** Names of the schedules. */
export const scheduleNames: readonly ScheduleName[] = ["fair", "random", "virtual-time"];

/** A schedule that is notified of every run. */
interface RunSchedule extends Schedule {
  /** Called when run number `run` of the session begins, counted from 0; left out where the order does not depend on it. */
  begin?(run: number): void;
}

/** The scheduler of a world: the seed decides the order in which ranks resume. */
export class SimScheduler implements Scheduler {
  readonly clock: VirtualClock;
  /** None for `fair`, which resumes all ranks of a call at once, in the order of the seed. */
  readonly schedule: RunSchedule | undefined;
  readonly #size: number;
  readonly #seed: number;
  #runs = 0;

  constructor(size: number, seed: number, name: ScheduleName, clock: VirtualClock) {
    this.#size = size;
    this.#seed = seed;
    this.clock = clock;
    if (name === "random") this.schedule = new RandomSchedule(seed);
    else if (name === "virtual-time") this.schedule = new VirtualTimeSchedule(clock);
  }

  wakeOrder(set: CallSet | undefined): readonly number[] {
    if (set !== undefined) {
      return randomOrder(set.calls.length, this.#seed, purpose.wake, set.comm.id, set.number);
    }
    const run = this.#runs++;
    this.schedule?.begin?.(run);
    return randomOrder(this.#size, this.#seed, purpose.start, run);
  }
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
    const bits = randomBits(this.#seed, purpose.resume, this.#run, this.#step++);
    const at = bits % ready.length;
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

/** Purposes that random choices are keyed by. */
const purpose = { start: 1, wake: 2, resume: 3 } as const;

/** 32 random bits for a key; every bit of a safe integer counts. */
function randomBits(seed: number, ...key: readonly number[]): number {
  let state = mix32(seed ^ 0x9e3779b9);
  const high = Math.floor(seed / 2 ** 32);
  // Seeds of 32 bits keep the orders of earlier versions.
  if (high !== 0) state = mix32(state ^ Math.imul(high + 0x5bd1e995, 0xc2b2ae35));
  for (const part of key) state = mix32(state ^ Math.imul(part + 0x6b43a9b5, 0x85ebca6b));
  return state;
}

/** A permutation of 0..size-1 for a key; every permutation is about equally likely. */
function randomOrder(size: number, seed: number, ...key: readonly number[]): number[] {
  // A loop, because this runs at every call, and `Array.from` with a function takes ten times as long.
  const order: number[] = [];
  for (let index = 0; index < size; index++) order.push(index);
  let state = randomBits(seed, ...key);
  for (let last = size - 1; last > 0; last--) {
    state = mix32(state + 0x9e3779b9);
    const pick = state % (last + 1);
    const moved = order[last] as number;
    order[last] = order[pick] as number;
    order[pick] = moved;
  }
  return order;
}
