/**
 * Has memory collected that no program uses: buffers that were never disposed, before they fill the arena, and arenas
 * of closed worlds.
 *
 * The runtime does not count the memory that a small object holds, so it has no reason to collect it. Its finalizers run in
 * a turn of the event loop, which a program that only awaits calls never takes. So when much was allocated, an allocation of
 * the same weight makes the runtime collect, and one call waits for a turn.
 */
import type { Arena } from "./arena.ts";

/** Bytes taken since the last look that call for another one: a look takes milliseconds, filling as much takes longer. */
const usualBytes = 2 ** 28;

/** Memory shown to the runtime: it is never touched, so it is only a number. */
const weightBytes = 2 ** 28;

/** Bytes of arenas without a world that are left to the runtime. */
const mostIdleBytes = 2 ** 25;

/** Says when to look, and looks. */
export class Pressure {
  readonly #leastBytes: number;
  /** Bytes that were live after the last look, or fewer. */
  #settled = 0;

  constructor(leastBytes: number = usualBytes) {
    this.#leastBytes = leastBytes;
  }

  /** True when so much was taken since the last look that some of it may be garbage. */
  isHigh({ live }: Arena): boolean {
    this.#settled = Math.min(this.#settled, live);
    return live - this.#settled > this.#leastBytes;
  }

  /** Has the runtime collect, and waits until it could give back what it found. */
  async relieve(arena: Arena): Promise<void> {
    await collect();
    this.#settled = arena.live;
  }
}

/** Bytes of the arenas of all executors that lost their last world since the runtime was shown a weight. */
let idleBytes = 0;
let looksLater = false;

/** The last world of an arena is closed. Unless the next one comes before the event loop turns, it is collected. */
export function noteIdle({ size }: Arena): void {
  idleBytes += size;
  if (looksLater || idleBytes <= mostIdleBytes) return;
  looksLater = true;
  // The turn keeps no process alive, and is nothing that a rank of another world may wait for.
  next(() => {
    looksLater = false;
    if (idleBytes > mostIdleBytes) showWeight();
  })?.unref?.();
}

/** A world takes the arena over. */
export function noteReuse({ size }: Arena): void {
  idleBytes = Math.max(0, idleBytes - size);
}

/** Before an executor makes another arena: waits until those without a world are given back, where they are many. */
export async function makeRoom(): Promise<void> {
  if (idleBytes > mostIdleBytes) await collect();
}

/** Has the runtime collect, and waits until it could tell of what it found. */
export async function collect(): Promise<void> {
  showWeight();
  // The runtime runs finalizers in a turn of its own, which may come after the first one here.
  await turn();
  await turn();
}

function showWeight(): void {
  idleBytes = 0;
  try {
    void new ArrayBuffer(weightBytes).byteLength;
  } catch {
    // Where not even addresses are left the runtime has been looking by itself.
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    next(resolve);
  });
}

/** Calls back in the next turn of the event loop. */
function next(callback: () => void): { unref?(): void } | undefined {
  if (typeof setImmediate === "function") return setImmediate(callback);
  setTimeout(callback, 0);
  return undefined;
}
