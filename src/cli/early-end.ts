/**
 * What a program does that ends the process while its ranks are at work: `process.exit`, an error nobody catches, or
 * nothing left to wait for. No library can stop that, but nobody may take it for success.
 */

/** Calls `tell` when the process ends before the returned function was called; its status is then 1. */
export function onEarlyEnd(tell: (status: number) => void): () => void {
  const listener = (status: number): void => {
    process.exitCode = 1;

    tell(status);
  };
  process.once("exit", listener);
  return () => process.removeListener("exit", listener);
}
