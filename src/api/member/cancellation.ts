/** Cancellation of calls by their signals. */

import { CommAbortedError, type CommErrorFacts } from "../errors.ts";
import { getOrCreate } from "../get-or-create.ts";
import type { Cancellation } from "../ledger/failures.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Operation } from "../op.ts";
import type { CollectiveName } from "../specification.ts";

/** Cancels a call when its signal fires, if the call is open then. */
export function cancelOnSignal(
  signal: AbortSignal,
  ledger: Pick<Ledger, "cancel">,
  facts: CommErrorFacts,
  collective: CollectiveName,
  op: Operation,
): void {
  const cancel = (): void => {
    const { call } = op;
    ledger.cancel(op, (how) => cancelledError(facts, collective, call, signal, how));
  };
  if (signal.aborted) {
    cancel();
    return;
  }
  const cancels = getOrCreate(bySignal, signal, () => new Set());
  if (cancels.size === 0) signal.addEventListener("abort", cancelAll);
  cancels.add(cancel);
  op.whenSettled(() => {
    cancels.delete(cancel);
    if (cancels.size === 0) signal.removeEventListener("abort", cancelAll);
  });
}

/**
 * Cancels each open call of a signal, in the order in which the calls were made. They are behind one listener: runtimes warn of
 * many, and search all of them to remove one.
 */
const bySignal = new WeakMap<AbortSignal, Set<() => void>>();

/** A call that settles meanwhile leaves the set, and is not cancelled. */
function cancelAll({ target }: Event): void {
  for (const cancel of bySignal.get(target as AbortSignal) ?? []) cancel();
}

/** The error of a cancelled call. Its number, `call`, is -1 if it was never posted. */
export function cancelledError(
  facts: CommErrorFacts,
  collective: CollectiveName,
  call: number,
  { reason }: AbortSignal,
  { wasSubmitted, endsAll }: Cancellation = { wasSubmitted: false, endsAll: false },
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
