/**
 * Triggers the collection of unused memory: buffers that were never disposed, before they fill the arena, and arenas of closed
 * worlds.
 *
 * The runtime does not count the memory that a small object holds, so it has no reason to collect it. Its finalizers run in a
 * turn of the event loop, which a program that only awaits calls never takes. So after large allocations, a plain allocation of
 * the same size makes the runtime collect, and one call waits for a turn.
 */
import { nextTurn, setOwnTimer } from "../../../../api/ledger/turns.ts";
import type { Arena } from "./arena.ts";

/** Bytes allocated between two collections. A collection takes milliseconds, filling as much memory takes longer. */
const usualBytes = 2 ** 28;

/** Memory shown to the runtime: it is never touched, so it is only a number. */
const weightBytes = 2 ** 28;

/** Bytes of arenas without a world up to which no collection is triggered. */
const maxIdleBytes = 2 ** 25;

/** Decides when to collect, and collects. */
export class Pressure {
  readonly #minBytes: number;
  /** Bytes that were live after the last collection, or fewer. */
  #settled = 0;

  constructor(minBytes: number = usualBytes) {
    this.#minBytes = minBytes;
  }

  /** True when enough was allocated since the last collection for a part to be garbage. */
  isHigh({ live }: Arena): boolean {
    this.#settled = Math.min(this.#settled, live);
    return live - this.#settled > this.#minBytes;
  }

  /** Makes the runtime collect, and waits for its finalizers. */
  async relieve(arena: Arena): Promise<void> {
    await collect();
    this.#settled = arena.live;
  }
}

/** Bytes of the arenas, of all executors, that lost their last world since the last collection. */
let idleBytes = 0;
let isScheduled = false;

/**
 * Called when the last world of an arena is closed. Without a next world before the event loop turns, the arena is collected.
 */
export function noteIdle({ size }: Arena): void {
  idleBytes += size;
  if (isScheduled || idleBytes <= maxIdleBytes) return;
  isScheduled = true;
  const check = (): void => {
    isScheduled = false;
    if (idleBytes > maxIdleBytes) showWeight();
  };
  setOwnTimer(check, 0, false);
}

/** Called when a world takes over the arena. */
export function noteReuse({ size }: Arena): void {
  idleBytes = Math.max(0, idleBytes - size);
}

/** Called before an executor creates another arena: waits for the collection of arenas without a world, if they are large. */
export async function collectIdle(): Promise<void> {
  if (idleBytes > maxIdleBytes) await collect();
}

/** Makes the runtime collect, and waits for its finalizers. */
export async function collect(): Promise<void> {
  showWeight();
  // The runtime runs finalizers in a turn of its own, which may come after the first one here.
  for (let turns = 0; turns < 2; turns++) await new Promise<void>(nextTurn);
}

function showWeight(): void {
  idleBytes = 0;
  try {
    void new ArrayBuffer(weightBytes).byteLength;
  } catch {
    // Without free addresses the runtime has already collected by itself.
  }
}
