/** Closing with several callers: a signal's handler and the program. */

/** Runs `end` at the first call. Later calls wait for it, and do not fail with its error. */
export function closeOnce(end: () => Promise<void>): () => Promise<void> {
  let ending: Promise<void> | undefined;
  return () => {
    if (ending !== undefined) return ending.then(undefined, () => undefined);
    ending = end();
    return ending;
  };
}
