/**
 * The next turn of the runtime's event loop, and timers of the monitors.
 *
 * The runtime lists them like those of programs. They are counted here, and wake no rank.
 */

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

/** Numbers of its own timers that keep the runtime alive, by the runtime's names. They end by themselves. */
export interface OwnTimers {
  Immediate: number;
  Timeout: number;
}

/** Those of all monitors. */
export const ownTimers: OwnTimers = { Immediate: 0, Timeout: 0 };

/** True while such a timer is set: whatever context that happens in, it belongs to no rank. */
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
export function ownTurn(step: () => void): void {
  setOwn(() => setTurn(step));
}

/** Promises that resolve others may keep the event loop at one turn for this long; then timers and sockets come to theirs. */
const longestTurnMs = 5;

/** The time of the first question about the age of this turn. */
let sinceMs: number | undefined;

/** True where the loop has been at this turn for long: since the first question of the turn, at times of `performance.now`. */
export function isTurnLong(nowMs: number): boolean {
  if (sinceMs === undefined) {
    sinceMs = nowMs;
    nextTurn(endTurn);
  }
  return nowMs - sinceMs > longestTurnMs;
}

function endTurn(): void {
  sinceMs = undefined;
}

/** Gives up a step; false where it was not to come. */
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

/** Runs `step` after a while, unless the function that this gives is called before. */
export function setOwnTimer(step: () => void, delayMs: number, keepsAlive: boolean): () => void {
  if (keepsAlive) return setKeepAliveTimer(step, delayMs);
  const timer = setOwn(() => set(step, delayMs)) as { unref?: () => void } | number;
  if (typeof timer === "object") timer.unref?.();
  return () => clear(timer as number);
}

/** The same with a timer that keeps the runtime alive. */
function setKeepAliveTimer(step: () => void, delayMs: number): () => void {
  let isSet = true;
  const end = (): void => {
    if (isSet) ownTimers.Timeout--;
    isSet = false;
  };
  const timer = setOwn(() =>
    set(() => {
      end();
      // The runtime lists a timer until its callback has returned.
      nextTurn(step);
    }, delayMs),
  );
  ownTimers.Timeout++;
  return () => {
    end();
    clear(timer);
    cancelTurn(step);
  };
}
