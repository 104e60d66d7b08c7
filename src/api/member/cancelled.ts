/** The error of a call that its own signal took back. */
import type { CollectiveName } from "../collectives/spec.ts";
import { CommAbortedError, type CommErrorFacts } from "../errors.ts";

/** What a signal tells about a call; -1 for one that was never posted. */
export function cancelledError(
  facts: CommErrorFacts,
  collective: CollectiveName,
  call: number,
  { reason }: AbortSignal,
): CommAbortedError {
  return new CommAbortedError(
    { headline: `${collective}: cancelled by its signal before it was submitted` },
    { ...facts, collective, call, cause: reason },
  );
}
