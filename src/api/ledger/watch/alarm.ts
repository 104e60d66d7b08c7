/**
 * A timer that is needed again and again, mostly for later than it was set.
 *
 * Starting and stopping a timer costs as much as a small call. One that is not needed rests instead, where the runtime can
 * do that: it keeps nothing alive and nothing in memory, and is taken again when it is due early enough.
 */

/** A runtime's timer; some runtimes give a number. */
interface Timer {
  ref?(): unknown;
  unref?(): unknown;
}

/** Runtimes take a longer delay for none. */
const longestMs = 2 ** 31 - 1;

/** Rings once for each request; it may ring too early, and is then set again. */
export class Alarm {
  #timer: Timer | number | undefined;
  /** When the timer comes due; never without one. */
  #dueMs = Infinity;
  /** The callback; `undefined` while it rests. */
  #ring: (() => void) | undefined;

  /** Has `ring` called at `atMs` of `performance.now()` or before, unless it rests until then. */
  ringBy(atMs: number, nowMs: number, ring: () => void): void {
    const isEarly = this.#dueMs <= atMs;
    if (isEarly && this.#ring !== undefined) return;
    if (isEarly) wake(this.#timer);
    else this.#set(atMs, nowMs);
    this.#ring = ring;
  }

  /** No call is due any more. */
  rest(): void {
    this.#ring = undefined;
    if (!sleep(this.#timer)) this.#stop();
  }

  #set(atMs: number, nowMs: number): void {
    this.#stop();
    const delayMs = Math.min(Math.max(1, Math.ceil(atMs - nowMs)), longestMs);
    this.#dueMs = nowMs + delayMs;
    this.#timer = setTimeout(() => this.#due(), delayMs);
  }

  #stop(): void {
    if (this.#timer !== undefined) clearTimeout(this.#timer as number);
    this.#timer = undefined;
    this.#dueMs = Infinity;
  }

  #due(): void {
    const ring = this.#ring;
    this.#timer = undefined;
    this.#dueMs = Infinity;
    this.#ring = undefined;
    ring?.();
  }
}

/** False where the runtime's timers cannot rest. */
function sleep(timer: Timer | number | undefined): boolean {
  if (typeof timer !== "object" || timer.ref === undefined || timer.unref === undefined)
    return false;
  timer.unref();
  return true;
}

function wake(timer: Timer | number | undefined): void {
  if (typeof timer === "object") timer.ref?.();
}
