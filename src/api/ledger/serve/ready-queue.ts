/**
 * The ready queue of a world with scheduled ranks: continuations of settled operations, run one at a time.
 *
 * A rank is ready while an operation that its program awaits has settled and the continuation has not run. One ready rank is
 * resumed per turn of the event loop, so that it runs until it awaits something else before the next one is picked.
 */
import type { Schedule } from "../../backend.ts";
import type { Resumption } from "../../op.ts";
import { Fifo } from "../calls/fifo.ts";
import type { Monitor } from "../watch/monitor.ts";

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
    // Monitors of other worlds that decide in this turn must not see the next one as work under way.
    queueMicrotask(() => afterMicrotasks(this.#turn));
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

/** Runs `step` in a later turn of the event loop, in which the microtask queue is empty. */
function afterMicrotasks(step: () => void): void {
  if (typeof setImmediate === "function") {
    setImmediate(step);
    return;
  }
  // Browsers delay nested timeouts by 4 ms, but not messages.
  const { port1, port2 } = new MessageChannel();
  const onMessage = (): void => {
    port1.close();
    step();
  };
  Object.assign(port1, { onmessage: onMessage });
  port2.postMessage(undefined);
}
