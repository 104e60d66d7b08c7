/** The error of a call that its own signal took back. */
import type { CollectiveName } from "../collectives/spec.ts";
import { CommAbortedError, type CommErrorFacts } from "../errors.ts";
import type { Cancelled } from "../ledger/calls/death.ts";

/** What a signal tells about a call; -1 for one that was never posted. */
export function cancelledError(
  facts: CommErrorFacts,
  collective: CollectiveName,
  call: number,
  { reason }: AbortSignal,
  { wasSubmitted, endsAll }: Cancelled = { wasSubmitted: false, endsAll: false },
): CommAbortedError {
  const when = wasSubmitted ? "after" : "before";
  const hint = endsAll
    ? "other ranks go on with the call: the communicator is aborted with it; rebuild() makes a new one"
    : "nothing was written; other ranks that make the call fail or wait without this one";
  return new CommAbortedError(
    { headline: `${collective}: cancelled by its signal ${when} it was submitted`, hint },
    { ...facts, collective, call, cause: reason },
  );
}
