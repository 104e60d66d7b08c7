/** Timers that keep the process alive: set, and neither fired, nor stopped, nor unreferenced. */
import { onTestFinished } from "vitest";

type SetTimeout = (run: () => void, delayMs: number) => NodeJS.Timeout;

/** Timers of the library and of the test, set while the test runs. */
export class LivingTimers {
  /** The number of timers set. */
  made = 0;
  readonly #living = new Map<NodeJS.Timeout, number>();

  /** Looks at the timers of this test; `adjust` may change what the runtime gives and takes. */
  constructor(adjust: (plain: SetTimeout) => SetTimeout = (plain) => plain) {
    const { setTimeout: set, clearTimeout: clear } = globalThis;
    const watched: SetTimeout = (run, delayMs) => {
      const timer = set(() => {
        this.#living.delete(timer);
        run();
      }, delayMs);
      const { ref, unref } = timer;
      timer.ref = () => {
        this.#living.set(timer, delayMs);
        return ref.call(timer);
      };
      timer.unref = () => {
        this.#living.delete(timer);
        return unref.call(timer);
      };
      this.made++;
      this.#living.set(timer, delayMs);
      return timer;
    };
    const setting = adjust(watched) as typeof set;
    const clearing = ((timer) => {
      this.#living.delete(timer as NodeJS.Timeout);
      clear(timer);
    }) as typeof clear;
    Object.assign(globalThis, { setTimeout: setting, clearTimeout: clearing });
    onTestFinished(() => {
      // A test that moved time may have put back the runtime's already.
      if (globalThis.setTimeout === setting) globalThis.setTimeout = set;
      if (globalThis.clearTimeout === clearing) globalThis.clearTimeout = clear;
    });
  }

  /** The number of living timers with a delay in the range. */
  count(minMs = 0, maxMs = Infinity): number {
    const delays = [...this.#living.values()];
    return delays.filter((delayMs) => delayMs >= minMs && delayMs <= maxMs).length;
  }
}
