/** The end of a world: the bounded wait for open calls, warnings of unobserved failures, and communicators that other processes have ended. */
import type { CommInfo, PeerProcesses, RemoteEnd } from "../backend.ts";
import { errorText } from "../error-text.ts";
import { CommTimeoutError } from "../errors.ts";
import { onLastTurn } from "../ledger/deadlock/runtime.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Operation } from "../op.ts";
import { emitWarning } from "../warnings.ts";
import type { Communicators } from "./communicators.ts";
import { abortedElsewhereError, leftBehindError } from "./world-errors.ts";

/** The closing object, and the longest wait for open calls. */
interface Closing {
  readonly name: string;
  readonly size: number;
  readonly closeMs: number;
}

/** Waits for open calls; where they take longer than the bound, `giveUp` ends them for the reason that it is given. */
export async function waitBounded(
  { name, size, closeMs }: Closing,
  wait: () => Promise<void>,
  giveUp: (reason: CommTimeoutError) => void,
): Promise<void> {
  const errors: { error: unknown }[] = [];
  const late = (): void => {
    const reason = new CommTimeoutError(
      {
        headline: `close: calls on "${name}" were not done within ${closeMs} ms`,
        hint: "another rank never made them; timeoutMs gives a call a deadline of its own",
      },
      { size, comm: name },
    );
    try {
      giveUp(reason);
    } catch (error) {
      // A hook of the caller threw: `close` rejects with it, and the process goes on.
      errors.push({ error });
    }
  };
  const timer = setTimeout(late, closeMs);
  await wait().finally(() => {
    clearTimeout(timer);
    for (const { error } of errors) throw error;
  });
}

/** Worlds with failures that are reported at the end, as long as they are in memory. */
const sources = new Set<WeakRef<Communicators>>();
const reported = new Set<unknown>();
let isListening = false;

/** Warns of unobserved failures when the process ends; gives a way to stop that. */
export function warnOfUnobserved(source: Communicators): () => void {
  for (const each of sources) if (each.deref() === undefined) sources.delete(each);
  const ref = new WeakRef(source);
  sources.add(ref);
  if (!isListening) onLastTurn(warnUnobserved);
  isListening = true;
  return () => void sources.delete(ref);
}

/** The runtime may go on after its last turn, and come to another one. */
function warnUnobserved(): void {
  for (const each of sources) {
    for (const [rank, { message, cause }] of each.deref()?.unreported() ?? []) {
      if (reported.has(cause)) continue;
      reported.add(cause);
      emitWarning(`rank ${rank}: ${message}\ncause: ${errorText(cause)}`, "TwincclUnseenFailure");
    }
  }
}

// Communicators that other processes have ended: aborted, closed, or left behind by a rebuild without this process.
//
// The session pushes such ends. From the first one on, open calls are examined at intervals. An end fails a call that was open
// an interval before: the call may complete, or fail by its own deadline with a better error, in that time.

const everyMs = 1_000;

/** Watches the communicators of a world; gives a way to stop that. */
export function watchRemoteEnds(
  others: PeerProcesses | undefined,
  communicators: Communicators,
): () => void {
  if (others === undefined) return () => undefined;
  /** The open calls of communicators that had an end elsewhere at the last check; of a world that closes, the ledger that executes one. */
  let before = new Map<Ledger, Operation | Ledger>();
  const end = (comm: CommInfo, ended: RemoteEnd): void => {
    try {
      if ("nextGeneration" in ended)
        communicators.abort(comm, leftBehindError(comm, ended.nextGeneration), "job");
      else if (ended.aborted === undefined) communicators.onRemoteClose(comm, ended.rank);
      else communicators.abort(comm, abortedElsewhereError(comm, ended.rank, ended.aborted));
    } catch (error) {
      // An error of a hook has no other receiver.
      emitWarning(errorText(error), "TwincclUnseenFailure");
    }
  };
  const check = (): void => {
    const now = new Map<Ledger, Operation | Ledger>();
    for (const ledger of [...communicators.ledgers]) {
      const { comm, isExecuting } = ledger;
      const oldest = ledger.oldest ?? (isExecuting ? ledger : undefined);
      const ended = oldest && others.remoteEnd(comm);
      if (oldest === undefined || ended === undefined) continue;
      now.set(ledger, oldest);
      if (before.get(ledger) === oldest) end(comm, ended);
    }
    before = now;
  };
  let timer: { unref?: () => void } | number | undefined;
  const stop = others.onRemoteEnd(() => {
    if (timer !== undefined) return;
    check();
    timer = setInterval(check, everyMs);
    if (typeof timer === "object") timer.unref?.();
  });
  return () => {
    stop();
    clearInterval(timer as Parameters<typeof clearInterval>[0]);
  };
}
