/**
 * Waits for an adapter in software, which computes on the cores of the process. Dawn in Node asks for its results in every turn of
 * the event loop, which keeps one of these cores busy: after some turns, the thread sleeps in each. A GPU needs no core, and a sleep
 * would only delay its results.
 */

/** Turns of a wait without sleep, some microseconds each. */
const briefTurns = 32;
/** Other events of the process are this much later at most. */
const sleepMs = 0.2;

let cell: Int32Array | undefined;
let waits = 0;
let turns = 0;
let isScheduled = false;

/** The result of `pending`, which an adapter in software settles. */
export async function sleepUntil<T>(pending: Promise<T>): Promise<T> {
  if (waits++ === 0) turns = 0;
  schedule();
  try {
    return await pending;
  } finally {
    waits--;
  }
}

function schedule(): void {
  if (isScheduled || waits === 0) return;
  isScheduled = true;
  setImmediate(() => {
    isScheduled = false;
    if (waits > 0 && ++turns > briefTurns) {
      cell ??= new Int32Array(new SharedArrayBuffer(4));
      Atomics.wait(cell, 0, 0, sleepMs);
    }
    schedule();
  });
}
