/** Ends that several ask for, a signal's handler and the program. */

/** Ends at the first time it is asked for. Who asks later waits for that end, and is not told what went wrong in it. */
export function endsOnce(end: () => Promise<void>): () => Promise<void> {
  let ending: Promise<void> | undefined;
  return () => {
    if (ending !== undefined) return ending.then(undefined, () => undefined);
    ending = end();
    return ending;
  };
}
