/** The end of a world: open calls are waited for within a bound, and unobserved failures are reported. */
import { CommTimeoutError } from "../errors.ts";
import { onLastTurn } from "../ledger/watch/resources.ts";
import { emitWarning } from "../warnings.ts";
import type { UnseenFailure } from "./communicators.ts";

/** The closing object, and the longest wait for open calls. */
export interface Closing {
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
  const told: { error: unknown }[] = [];
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
      told.push({ error });
    }
  };
  const timer = setTimeout(late, closeMs);
  await wait().finally(() => {
    clearTimeout(timer);
    for (const { error } of told) throw error;
  });
}

/** The used part of a world's communicators. */
interface Telling {
  untold(): Iterable<UnseenFailure>;
}

/** Worlds with failures that are reported at the end, as long as they are in memory. */
const watched = new Set<WeakRef<Telling>>();
const told = new Set<unknown>();
let isListening = false;

/** Warns of unobserved failures when the process ends; gives a way to stop that. */
export function warnOfUnseen(telling: Telling): () => void {
  for (const each of watched) if (each.deref() === undefined) watched.delete(each);
  const ref = new WeakRef(telling);
  watched.add(ref);
  if (!isListening) onLastTurn(tellUnseen);
  isListening = true;
  return () => void watched.delete(ref);
}

/** The runtime may go on after its last turn, and come to another one. */
function tellUnseen(): void {
  for (const each of watched) {
    for (const [rank, { message, cause }] of each.deref()?.untold() ?? []) {
      if (told.has(cause)) continue;
      told.add(cause);
      emitWarning(`rank ${rank}: ${message}\ncause: ${String(cause)}`, "TwincclUnseenFailure");
    }
  }
}
