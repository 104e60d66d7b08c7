/** Cancellation of calls by their signals. */

import { CommAbortedError, type CommErrorFacts } from "../errors.ts";
import { knownOr } from "../known.ts";
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
  const calls = knownOr(bySignal, signal, () => new CallsOfSignal(signal));
  calls.add(cancel);
  op.whenSettled(() => calls.delete(cancel));
}

/** The open calls of one signal, behind one listener: runtimes warn of many, and search all of them to remove one. */
class CallsOfSignal {
  readonly #signal: AbortSignal;
  /** Cancels each call, in the order in which the calls were made. */
  readonly #cancels = new Set<() => void>();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  add(cancel: () => void): void {
    if (this.#cancels.size === 0) this.#signal.addEventListener("abort", this.#cancelAll);
    this.#cancels.add(cancel);
  }

  delete(cancel: () => void): void {
    const isLast = this.#cancels.delete(cancel) && this.#cancels.size === 0;
    if (isLast) this.#signal.removeEventListener("abort", this.#cancelAll);
  }

  /** A call that settles meanwhile leaves the set, and is not cancelled. */
  readonly #cancelAll = (): void => {
    for (const cancel of this.#cancels) cancel();
  };
}

const bySignal = new WeakMap<AbortSignal, CallsOfSignal>();

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
