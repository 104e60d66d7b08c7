/**
 * The moments at which settled calls resume their ranks, and the turns of the event loop between them.
 *
 * Ranks that only await calls never leave the microtask queue, in which no timer, socket or system signal is handled. At
 * intervals, all wake-ups of a world are therefore held until the ranks are idle. If this turn of the event loop is long by
 * then, they are held until the next turn. When they are held depends on the work of the calls alone, and for how long changes
 * nothing.
 */

import type { Schedule } from "../backend.ts";
import type { Resumption } from "../op.ts";
import { isTurnLong, nextTurn, ownTurn } from "./deadlock/event-loop.ts";
import type { Monitor } from "./deadlock/monitor.ts";
import { Fifo } from "./order/streams.ts";

/** Wake-ups of small calls between two holds: about 300 µs of work, then a hold of two. */
const workBetween = 512;

/** Microtasks after which ranks are idle, unless they await much else between their calls. */
const restHops = 64;

const passed = Promise.resolve();

/** Wakes the ranks of one world. */
export class WakeUps {
  readonly #monitor: Pick<Monitor, "allParked">;
  #work = 0;
  /** Wake-ups that wait until the ranks have come to rest, in order. */
  #held: (() => void)[] | undefined;
  /** Microtasks until then. */
  #hops = 0;

  constructor(monitor: Pick<Monitor, "allParked">) {
    this.#monitor = monitor;
  }

  /** A run begins. */
  reset(): void {
    this.#work = 0;
  }

  /** Two microtasks from now, when the last rank to post has had its `await` reach the operation. */
  schedule(settle: () => void, work: number): void {
    this.#work += work;
    let isSecond = false;
    const hop = (): void => {
      if (this.#held !== undefined) this.#held.push(hop);
      else if (!isSecond) {
        isSecond = true;
        void passed.then(hop);
      } else if (this.#work >= workBetween) this.#hold(hop);
      else settle();
    };
    void passed.then(hop);
  }

  #hold(first: () => void): void {
    this.#work = 0;
    this.#held = [first];
    this.#hops = restHops;
    void passed.then(this.#rest);
  }

  readonly #rest = (): void => {
    if (--this.#hops > 0) void passed.then(this.#rest);
    // A rank that does not await a call may wait for another one in microtasks, which would keep the turn from ending.
    else if (this.#monitor.allParked && isTurnLong(performance.now())) nextTurn(this.#release);
    else this.#release();
  };

  readonly #release = (): void => {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const hop of held) void passed.then(hop);
  };
}

// Scheduled ranks: continuations of settled operations run one at a time.
//
// A rank is ready while an operation that its program awaits has settled and the continuation has not run. Each turn of the
// event loop resumes one ready rank. That rank runs until its next wait before another one is picked.

export class ReadyQueue implements Resumption {
  readonly #schedule: Schedule;
  readonly #monitor: Pick<Monitor, "executing">;
  /** By world rank; operations of one rank resume in the order in which they settled. */
  readonly #continuations: Fifo<() => void>[] = [];
  #size = 0;
  #executing = 0;
  #isDue = false;

  /** The monitor regards a ready rank as work under way: no deadlock is decided before it has resumed. */
  constructor(schedule: Schedule, monitor: Pick<Monitor, "executing">) {
    this.#schedule = schedule;
    this.#monitor = monitor;
  }

  /** Runs `resume` when the schedule picks the rank. */
  add(rank: number, resume: () => void): void {
    this.#continuations[rank] ??= new Fifo();
    const own = this.#continuations[rank];
    own.push(resume);
    if (own.length === 1) this.#schedule.add(rank);
    if (this.#size++ === 0) this.#monitor.executing(1);
    this.#pickLater();
  }

  /** Resolves when the schedule picks the rank. */
  turnOf(rank: number): Promise<void> {
    return new Promise((resolve) => this.add(rank, resolve));
  }

  /**
   * A call begins or ends that the session executes asynchronously. No rank is picked meanwhile: which ranks are ready must
   * not depend on how long the executor takes.
   */
  executing(change: 1 | -1): void {
    this.#executing += change;
    this.#pickLater();
  }

  #pickLater(): void {
    if (this.#isDue || this.#size === 0 || this.#executing > 0) return;
    this.#isDue = true;
    // The resumed rank goes on first: what it schedules comes before the next turn. Other worlds do not change this order.
    queueMicrotask(() => ownTurn(this.#turn));
  }

  readonly #turn = (): void => {
    this.#isDue = false;
    if (this.#executing > 0) return;
    const rank = this.#schedule.next();
    const own = this.#continuations[rank] as Fifo<() => void>;
    const resume = own.shift() as () => void;
    if (own.length > 0) this.#schedule.add(rank);
    if (--this.#size === 0) this.#monitor.executing(-1);
    resume();
    this.#pickLater();
  };
}
