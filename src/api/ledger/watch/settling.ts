/**
 * The moments at which served calls wake their ranks, and the turns of the event loop between them.
 *
 * Ranks that only await calls never leave the microtask queue, in which no timer, no socket and no signal of the system is
 * served. Every so often all wake-ups of a world are therefore held until the ranks have come to rest; where the event loop
 * has been at one turn for long by then, until its next turn. When they are held depends on the work of the calls alone, and
 * for how long changes nothing: ranks at rest do nothing before they are woken.
 */
import { isTurnLong, nextTurn } from "./loop-turn.ts";
import type { Monitor } from "./monitor.ts";

/** Wake-ups are held after so many ranks of small calls: for two microseconds after some 300. */
const workBetween = 512;

/** Ranks come to rest within so many microtasks, unless they await much else between their calls. */
const restHops = 64;

const passed = Promise.resolve();

/** Wakes the ranks of one world. */
export class Settling {
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
  begin(): void {
    this.#work = 0;
  }

  /** Two microtasks from now, when the last rank to post has had its `await` reach the operation. */
  later(settle: () => void, work: number): void {
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
