/** One operation that is made of several. */
import { type CommOp, completeOp, failOp, submitOp } from "../op.ts";
import type { Poster } from "./poster.ts";

/**
 * Submits `whole` when all its parts are submitted, and settles it when all are settled: with their first error, or
 * with `result`.
 */
export function completeTogether(whole: CommOp, parts: readonly CommOp[], result: unknown): void {
  let waiting = parts.length;
  let open = parts.length;
  let failure: { readonly error: unknown } | undefined;
  const settle = (): void => {
    if (failure !== undefined) failOp(whole, failure.error);
    else completeOp(whole, result);
  };
  if (open === 0) settle();
  for (const part of parts) {
    part.whenSubmitted(() => {
      waiting--;
      whole.submittedAtPs = Math.max(whole.submittedAtPs, part.submittedAtPs);
      if (waiting === 0) submitOp(whole);
    });
    // A hook of a part may make it fail.
    part.whenFinal((error) => {
      if (part.status === "failed") failure ??= { error };
      whole.finishedAtPs = Math.max(whole.finishedAtPs, part.finishedAtPs);
      open--;
      if (open === 0) settle();
    });
  }
}

/**
 * Refuses `whole`, then what is left of those of its parts that end with it. It comes first: it is one call that failed,
 * with hooks and a count of its own.
 */
export function refuseTogether(
  poster: Pick<Poster, "refuse">,
  whole: CommOp,
  parts: readonly CommOp[],
  error: unknown,
): void {
  poster.refuse(whole, error);
  for (const part of parts) failOp(part, error);
}
