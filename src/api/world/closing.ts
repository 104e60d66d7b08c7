/** The end of a world: open calls are waited for within a bound, and failures that nobody saw are told. */
import { type CommError, CommTimeoutError } from "../errors.ts";
import { onLastTurn } from "../ledger/watch/resources.ts";
import { emitWarning } from "./warnings.ts";

/** Who closes, and how long that waits for open calls. */
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
      // A hook of the caller threw: whoever closes hears of it, and not the process.
      told.push({ error });
    }
  };
  const timer = setTimeout(late, closeMs);
  await wait().finally(() => {
    clearTimeout(timer);
    for (const { error } of told) throw error;
  });
}

/** Warns of failures that nobody has looked at when the process ends; gives a way to stop that. */
export function warnOfUnseen(
  poisons: () => Iterable<readonly [worldRank: number, poison: CommError]>,
): () => void {
  const stop = onLastTurn(() => {
    stop();
    for (const [rank, { message, cause }] of poisons()) {
      emitWarning(`rank ${rank}: ${message}\ncause: ${String(cause)}`, "TwincclUnseenFailure");
    }
  });
  return stop;
}
