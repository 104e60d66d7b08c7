/**
 * Turns of the event loop: the next one and timers of monitors, and the moments of a turn at which settled calls resume ranks.
 *
 * The runtime lists turns and timers like those of programs. They are counted here, and wake no rank.
 */
import type { Schedule } from "../backend.ts";
import type { Resumption } from "../op.ts";
import { Fifo } from "./streams.ts";

interface Runtime {
  readonly setImmediate?: (callback: () => void) => unknown;
  readonly MessageChannel?: new () => {
    readonly port1: { onmessage?: (() => void) | null; close(): void };
    readonly port2: { postMessage(message: unknown): void };
  };
}

// Taken once: tests may put timers that stand still in their place later.
const { setImmediate: immediate, MessageChannel: Channel } = globalThis as Runtime;
const { setTimeout: set, clearTimeout: clear } = globalThis;

/** Numbers of the library's timers that keep the runtime alive, by the runtime's names. They end by themselves. */
export interface OwnTimers {
  Immediate: number;
  Timeout: number;
}

/** The timers of all worlds. */
export const ownTimers: OwnTimers = { Immediate: 0, Timeout: 0 };

/** True while the library sets a timer: it belongs to no rank, whatever the async context. */
export let isSettingOwn = false;

function setOwn<T>(set: () => T): T {
  isSettingOwn = true;
  try {
    return set();
  } finally {
    isSettingOwn = false;
  }
}

/** The steps of the next turn: one turn for all of them, however many worlds begin before it. */
let steps = new Set<() => void>();
let isDue = false;

/** Runs `step` in the next turn of the event loop, behind events and timers that are due by then. */
export function nextTurn(step: () => void): void {
  steps.add(step);
  if (isDue) return;
  isDue = true;
  ownTurn(takeTurn);
}

/**
 * Runs `step` in a turn of its own, behind all that was scheduled before it. With `nextTurn` it may come sooner, where a step of
 * another world is due.
 */
function ownTurn(step: () => void): void {
  setOwn(() => setTurn(step));
}

/** Time of the first call of `turnAgeMs` in this turn. */
let sinceMs: number | undefined;

/**
 * Age of this turn of the event loop at a time of `performance.now`, counted from the first call in the turn. Promises that
 * resolve others keep the loop in the turn, while timers and sockets wait.
 */
export function turnAgeMs(nowMs: number): number {
  if (sinceMs === undefined) {
    sinceMs = nowMs;
    nextTurn(() => {
      sinceMs = undefined;
    });
  }
  return nowMs - sinceMs;
}

/** Cancels a step of the next turn; false if it was not due. */
export function cancelTurn(step: () => void): boolean {
  return steps.delete(step);
}

function setTurn(step: () => void): void {
  if (immediate !== undefined) {
    ownTimers.Immediate++;
    immediate(() => {
      ownTimers.Immediate--;
      step();
    });
  } else if (Channel !== undefined) {
    // Browsers make a timer that another one sets wait for 4 ms.
    const { port1, port2 } = new Channel();
    port1.onmessage = () => {
      port1.close();
      step();
    };
    port2.postMessage(undefined);
  } else set(step, 0);
}

function takeTurn(): void {
  isDue = false;
  const due = [...steps];
  steps = new Set();
  let at = 0;
  const go = (): void => {
    while (at < due.length) (due[at++] as () => void)();
  };
  try {
    go();
  } finally {
    // One that throws keeps no other from its turn.
    if (at < due.length) nextTurn(go);
  }
}

/** The longest delay of a timer, about 25 days: runtimes take a longer one for none. */
export const longestTimerMs: number = 2 ** 31 - 1;

/** Runs `step` after a delay, with a timer that may keep the runtime alive; returns the function that cancels it. */
export function setOwnTimer(step: () => void, delayMs: number, keepsAlive: boolean): () => void {
  let isCounted = keepsAlive;
  const end = (): void => {
    if (isCounted) ownTimers.Timeout--;
    isCounted = false;
  };
  const due = (): void => {
    end();
    // The runtime lists a timer that keeps it alive until its callback has returned.
    if (keepsAlive) nextTurn(step);
    else step();
  };
  const timer = setOwn(() => set(due, delayMs)) as { unref?: () => void } | number;
  if (keepsAlive) ownTimers.Timeout++;
  else if (typeof timer === "object") timer.unref?.();
  return () => {
    end();
    clear(timer as number);
    cancelTurn(step);
  };
}

// Wake-ups.
//
// Ranks that only await calls never leave the microtask queue, in which no timer, socket or system signal is handled. At
// intervals, all wake-ups of a world are therefore held until the ranks are idle. If this turn of the event loop is long by
// then, they are held until the next turn. When they are held depends on the cost of the calls alone, and for how long changes
// nothing.

/** Cost between two holds, in wake-ups of small calls: about 200 µs, then a hold of two. */
const costBetween = 256;

/** Cost before the first hold of a run, whose code may be cold: a call of 8 ranks. It doubles with every hold. */
const firstCost = 8;

/** Longest turn of the event loop. Timers are due within 10 ms: the rest is for other processes and the garbage collector. */
const longestTurnMs = 2;

/** Microtasks after which ranks are idle, unless they await much else between their calls. */
const restHops = 64;

const passed = Promise.resolve();

/** Wakes the ranks of one world. */
export class WakeUps {
  readonly #monitor: { readonly allParked: boolean };
  /** Cost of the calls since the last hold. */
  #cost = 0;
  /** Cost at which the next hold begins. */
  #limit = firstCost;
  /** Wake-ups that wait until the ranks have come to rest, in order. */
  #held: (() => void)[] | undefined;
  /** Microtasks until then. */
  #hops = 0;

  constructor(monitor: { readonly allParked: boolean }) {
    this.#monitor = monitor;
  }

  /** A run begins. */
  reset(): void {
    this.#cost = 0;
    this.#limit = firstCost;
    turnAgeMs(performance.now());
  }

  /** Two microtasks from now, when the last rank to post has had its `await` reach the operation. */
  schedule(settle: () => void, cost: number): void {
    this.#cost += cost;
    let isSecond = false;
    const hop = (): void => {
      if (this.#held !== undefined) this.#held.push(hop);
      else if (!isSecond) {
        isSecond = true;
        void passed.then(hop);
      } else if (this.#cost >= this.#limit) this.#hold(hop);
      else settle();
    };
    void passed.then(hop);
  }

  #hold(first: () => void): void {
    this.#cost = 0;
    this.#limit = Math.min(2 * this.#limit, costBetween);
    this.#held = [first];
    this.#hops = restHops;
    void passed.then(this.#rest);
  }

  readonly #rest = (): void => {
    if (--this.#hops > 0) void passed.then(this.#rest);
    // A rank that does not await a call may wait for another one in microtasks, which would keep the turn from ending.
    else if (this.#monitor.allParked && turnAgeMs(performance.now()) > longestTurnMs)
      nextTurn(this.#releaseInTurn);
    else this.#release();
  };

  readonly #releaseInTurn = (): void => {
    // The age of this turn counts from here, not from the next hold.
    turnAgeMs(performance.now());
    this.#release();
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
  readonly #monitor: { executing(change: 1 | -1): void };
  /** By world rank; operations of one rank resume in the order in which they settled. */
  readonly #continuations: Fifo<() => void>[] = [];
  readonly #isExecuting: () => boolean;
  #size = 0;
  #isDue = false;

  /**
   * The monitor regards a ready rank as work under way: no deadlock is decided before it has resumed. No rank is picked while the
   * session executes a call asynchronously: which ranks are ready must not depend on how long the executor takes.
   */
  constructor(
    schedule: Schedule,
    monitor: { executing(change: 1 | -1): void },
    isExecuting: () => boolean,
  ) {
    this.#schedule = schedule;
    this.#monitor = monitor;
    this.#isExecuting = isExecuting;
  }

  /** Runs `resume` when the schedule picks the rank. */
  add(rank: number, resume: () => void): void {
    this.#continuations[rank] ??= new Fifo();
    const own = this.#continuations[rank];
    own.push(resume);
    if (own.length === 1) this.#schedule.add(rank);
    if (this.#size++ === 0) this.#monitor.executing(1);
    this.pickLater();
  }

  /** Resolves when the schedule picks the rank. */
  turnOf(rank: number): Promise<void> {
    return new Promise((resolve) => this.add(rank, resolve));
  }

  /** Has a rank picked in a later turn, where one is ready and no call is being executed. */
  pickLater(): void {
    if (this.#isDue || this.#size === 0 || this.#isExecuting()) return;
    this.#isDue = true;
    // The resumed rank goes on first: what it schedules comes before the next turn. Other worlds do not change this order.
    queueMicrotask(() => ownTurn(this.#turn));
  }

  readonly #turn = (): void => {
    this.#isDue = false;
    if (this.#isExecuting()) return;
    const rank = this.#schedule.next();
    const own = this.#continuations[rank] as Fifo<() => void>;
    const resume = own.shift() as () => void;
    if (own.length > 0) this.#schedule.add(rank);
    if (--this.#size === 0) this.#monitor.executing(-1);
    resume();
    this.pickLater();
  };
}
