/** Giving things back where one failure must not keep the rest. */

/** Runs every step, also after one threw; then throws what was thrown first. */
export function inTurn(steps: Iterable<() => void>): void {
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
export async function within(
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
