/** Bounded waits, timers, and the end of the process: for this layer and for backends. */
import { longestTimerMs } from "../api/ledger/turns.ts";

/** True when a promise settles in time, and before `cancelled` fires; its error is ignored. */
export async function settlesWithin(
  boundMs: number,
  promise: Promise<unknown>,
  cancelled?: AbortSignal,
): Promise<boolean> {
  let giveUp = (): void => undefined;
  const late = new Promise<boolean>((resolve) => {
    giveUp = () => resolve(false);
  });
  const timer = setTimeout(giveUp, boundMs);
  cancelled?.addEventListener("abort", giveUp);
  if (cancelled?.aborted === true) giveUp();
  const settled = promise.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    clearTimeout(timer);
    cancelled?.removeEventListener("abort", giveUp);
  }
}

/** Keeps the process alive until a promise settles, as a timer does. */
export function keepAlive<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => undefined, longestTimerMs);
  return promise.finally(() => clearInterval(timer));
}

/** Resolves after a time, or when the signal fires; with `unref` it keeps no process alive. */
export function pause(ms: number, signal?: AbortSignal, { unref = false } = {}): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (unref) timer.unref();
    signal?.addEventListener("abort", done, { once: true });
    if (signal?.aborted === true) done();
  });
}

/** A session, for its end. */
interface Closable {
  close(): Promise<void>;
}

/** Sessions that are not closed. */
const open = new Set<Closable>();
let listening = false;

/** Closes a session that the program left open, before Node.js exits (`beforeExit`). */
export function closeOnExit(session: Closable): void {
  open.add(session);
  if (listening) return;
  listening = true;
  process.on("beforeExit", () => {
    for (const each of open) {
      open.delete(each);
      // No caller remains to receive an error.
      each.close().catch(() => undefined);
    }
  });
}

/** Cancels `closeOnExit` for a session that is closed otherwise. */
export function cancelCloseOnExit(session: Closable): void {
  open.delete(session);
}
