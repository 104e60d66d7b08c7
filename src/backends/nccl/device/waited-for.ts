/** Waits that nothing of Node.js knows of, such as those for other threads. */

const longestMs = 2 ** 31 - 1;

/** Keeps the process alive until a promise settles, as a timer does. */
export function waitedFor<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => undefined, longestMs);
  return promise.finally(() => clearInterval(timer));
}
