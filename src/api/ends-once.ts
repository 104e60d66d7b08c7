/** Ends that have several callers: a signal's handler and the program. */

/** Ends at the first call. Later calls wait for that end, and do not fail with its error. */
export function endsOnce(end: () => Promise<void>): () => Promise<void> {
  let ending: Promise<void> | undefined;
  return () => {
    if (ending !== undefined) return ending.then(undefined, () => undefined);
    ending = end();
    return ending;
  };
}
