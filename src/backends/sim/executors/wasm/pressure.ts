/**
 * Has buffers collected that nobody disposed, before they fill the arena.
 *
 * The runtime does not see how much of an arena a small object holds, so it sees no reason to collect it; and it tells of
 * what it has collected in a turn of the event loop, while a program that only awaits calls never takes one. So when much
 * was allocated, the runtime is shown a weight that makes it look, and one call waits for a turn.
 */
import type { Arena } from "./arena.ts";

/** Bytes taken since the last look that call for another one: a look takes milliseconds, filling as much takes longer. */
const usualBytes = 2 ** 28;

/** What the runtime is shown: memory that is never touched, so that it is only a number. */
const weightBytes = 2 ** 28;

/** Says when to look, and looks. */
export class Pressure {
  readonly #leastBytes: number;
  /** Bytes that were live after the last look, or fewer. */
  #settled = 0;

  constructor(leastBytes: number = usualBytes) {
    this.#leastBytes = leastBytes;
  }

  /** Whether so much was taken since the last look that some of it may be nobody's. */
  isHigh({ live }: Arena): boolean {
    this.#settled = Math.min(this.#settled, live);
    return live - this.#settled > this.#leastBytes;
  }

  /** Has the runtime collect, and waits until it could give back what it found. */
  async relieve(arena: Arena): Promise<void> {
    showWeight();
    // The runtime tells in a turn of its own, which may come after the first one here.
    await turn();
    await turn();
    this.#settled = arena.live;
  }
}

function showWeight(): void {
  try {
    void new ArrayBuffer(weightBytes).byteLength;
  } catch {
    // Where not even addresses are left the runtime has been looking by itself.
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === "function") setImmediate(resolve);
    else setTimeout(resolve, 0);
  });
}
