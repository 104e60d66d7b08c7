/** Helpers for cleanup, bounded waits and promises. */
import type { Completion } from "../../../api/index.ts";

/** Runs every step, also after one threw; then throws what was thrown first. */
export function runAll(steps: Iterable<() => void>): void {
  let failure: { readonly error: unknown } | undefined;
  for (const step of steps) {
    try {
      step();
    } catch (error) {
      failure ??= { error };
    }
  }
  if (failure !== undefined) throw failure.error;
}

/** True when a promise settles in time, and before it is cancelled; its error is ignored. */
export async function settlesWithin(
  boundMs: number,
  promise: Promise<unknown>,
  calledOff?: AbortSignal,
): Promise<boolean> {
  let giveUp = (): void => undefined;
  const late = new Promise<boolean>((resolve) => {
    giveUp = () => resolve(false);
  });
  const timer = setTimeout(giveUp, boundMs);
  calledOff?.addEventListener("abort", giveUp);
  if (calledOff?.aborted === true) giveUp();
  const settled = promise.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    clearTimeout(timer);
    calledOff?.removeEventListener("abort", giveUp);
  }
}

const longestMs = 2 ** 31 - 1;

/** Keeps the process alive until a promise settles, as a timer does. */
export function keepAlive<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => undefined, longestMs);
  return promise.finally(() => clearInterval(timer));
}

/** A promise of work that begins with a `Completion`. */
export function asPromise(begin: (waiting: Completion) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ acceptsMore: false, settled });
  });
}
