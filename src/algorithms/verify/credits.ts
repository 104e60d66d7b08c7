/**
 * Could the program deadlock? Runs its sends and receives, without data, over channels that hold a bounded number of
 * messages, and prints the cycle when it gets stuck.
 *
 * With k credits, send number j of a channel completes once receive number j−k has. With none (rendezvous, the worst
 * case) a send completes only while its receiver stands at the matching receive. Programs have no wildcard receives,
 * so one run decides for every timing.
 */
import { none, type Program, type Step, stepAt, stepText } from "../program.ts";

/** Smallest number of credits (0, 1, 2 … `limit`) that cannot deadlock; `undefined` when none up to it is enough. */
export function smallestSafeCredits(program: Program, limit: number): number | undefined {
  for (let credits = 0; credits <= limit; credits++) {
    if (findDeadlock(program, credits) === undefined) return credits;
  }
  return undefined;
}

/** The cycle in which a program gets stuck with so many credits, a line a rank; `undefined` when it finishes. */
export function findDeadlock(program: Program, credits: number): readonly string[] | undefined {
  const run = new BoundedRun(program, credits);
  return run.finishes() ? undefined : run.cycle();
}

class BoundedRun {
  readonly #program: Program;
  readonly #credits: number;
  /** Step each lane stands at. */
  readonly #at: Int32Array;
  /** 1 when the receiving half of that step is done. */
  readonly #received: Uint8Array;
  readonly #sent: Int32Array;
  readonly #taken: Int32Array;
  readonly #offered: Uint8Array;
  readonly #waiting: Int32Array;

  constructor(program: Program, credits: number) {
    const { ranks, channels, starts } = program;
    this.#program = program;
    this.#credits = credits;
    this.#at = starts.slice(0, ranks * channels);
    this.#received = new Uint8Array(ranks * channels);
    const queues = ranks * ranks * channels;
    this.#sent = new Int32Array(queues);
    this.#taken = new Int32Array(queues);
    this.#offered = new Uint8Array(queues);
    this.#waiting = new Int32Array(queues).fill(none);
  }

  finishes(): boolean {
    const ready = Array.from(this.#at.keys()).reverse();
    for (let lane = ready.pop(); lane !== undefined; lane = ready.pop()) this.#advance(lane, ready);
    return this.#at.every((at, lane) => at === this.#program.starts[lane + 1]);
  }

  #advance(lane: number, ready: number[]): void {
    const end = this.#program.starts[lane + 1] as number;
    while ((this.#at[lane] as number) < end) {
      const step = stepAt(this.#program, this.#at[lane] as number);
      if (step.from !== none && this.#received[lane] === 0) {
        if (!this.#receive(lane, step, ready)) return;
        this.#received[lane] = 1;
      }
      if (step.to !== none && !this.#send(lane, step, ready)) return;
      this.#received[lane] = 0;
      this.#at[lane] = (this.#at[lane] as number) + 1;
    }
  }

  #receive(lane: number, step: Step, ready: number[]): boolean {
    const queue = this.#queue(step.from, this.#rankOf(lane), lane);
    const there = this.#credits === 0 ? this.#offered[queue] === 1 : this.#fill(queue) > 0;
    if (!there) {
      this.#waiting[queue] = lane;
      return false;
    }
    this.#offered[queue] = 0;
    this.#taken[queue] = (this.#taken[queue] as number) + 1;
    this.#wake(queue, ready);
    return true;
  }

  #send(lane: number, step: Step, ready: number[]): boolean {
    const queue = this.#queue(this.#rankOf(lane), step.to, lane);
    if (this.#credits > 0) {
      if (this.#fill(queue) >= this.#credits) {
        this.#waiting[queue] = lane;
        return false;
      }
      this.#sent[queue] = (this.#sent[queue] as number) + 1;
      this.#wake(queue, ready);
      return true;
    }
    // Rendezvous: offer once, then wait until the receiver has taken it.
    const number = this.#sent[queue] as number;
    if ((this.#taken[queue] as number) > number) {
      this.#sent[queue] = number + 1;
      return true;
    }
    this.#offered[queue] = 1;
    this.#wake(queue, ready);
    this.#waiting[queue] = lane;
    return false;
  }

  #fill(queue: number): number {
    return (this.#sent[queue] as number) - (this.#taken[queue] as number);
  }

  #wake(queue: number, ready: number[]): void {
    const lane = this.#waiting[queue] as number;
    if (lane === none) return;
    this.#waiting[queue] = none;
    ready.push(lane);
  }

  #rankOf(lane: number): number {
    return Math.floor(lane / this.#program.channels);
  }

  #queue(from: number, to: number, lane: number): number {
    const { ranks, channels } = this.#program;
    return ((lane % channels) * ranks + from) * ranks + to;
  }

  /** Follows who waits for whom from the first stuck lane until a lane comes up again. */
  cycle(): string[] {
    const { starts, channels } = this.#program;
    const stuck = this.#at.findIndex((at, lane) => at < (starts[lane + 1] as number));
    const path: number[] = [];
    let lane = stuck;
    while (!path.includes(lane) && (this.#at[lane] as number) < (starts[lane + 1] as number)) {
      path.push(lane);
      lane = this.#waitsFor(lane) * channels + (lane % channels);
    }
    const cycle = path.includes(lane) ? path.slice(path.indexOf(lane)) : path;
    return cycle.map((member) => {
      const step = stepAt(this.#program, this.#at[member] as number);
      const waits = `waits for rank ${this.#waitsFor(member)}`;
      return `rank ${this.#rankOf(member)} ${waits} (${stepText(step)})`;
    });
  }

  #waitsFor(lane: number): number {
    const step = stepAt(this.#program, this.#at[lane] as number);
    return step.from !== none && this.#received[lane] === 0 ? step.from : step.to;
  }
}
