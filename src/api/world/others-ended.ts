/**
 * Finds calls that other processes never make: they have aborted a communicator, or closed it before, or have
 * gone on to the next life of the job without this process.
 *
 * No process is queried while calls are done in time. Where one is open for longer, the other processes are queried each second.
 */
import type { CommInfo, PeerProcesses, RemoteEnd } from "../backend.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { CommOp } from "../op.ts";
import { emitWarning } from "../warnings.ts";
import type { Communicators } from "./communicators.ts";
import { abortedElsewhere, leftBehind } from "./world-errors.ts";

const everyMs = 1_000;

/** Watches the communicators of a world; gives a way to stop that. */
export function endWithOthers(
  others: PeerProcesses | undefined,
  communicators: Communicators,
): () => void {
  if (others === undefined) return () => undefined;
  /** The open calls at the last look. */
  let before = new Map<Ledger, CommOp>();
  const asked = new Set<Ledger>();
  const end = (comm: CommInfo, ended: RemoteEnd): void => {
    if ("nextGeneration" in ended)
      communicators.abort(comm, leftBehind(comm, ended.nextGeneration), "job");
    else if (ended.aborted === undefined) communicators.closedBy(comm, ended.rank);
    else communicators.abort(comm, abortedElsewhere(comm, ended.rank, ended.aborted));
  };
  const ask = async (ledger: Ledger, op: CommOp): Promise<void> => {
    asked.add(ledger);
    try {
      const ended = await others.remoteEnd(ledger.comm);
      if (ended !== undefined && op.pending) end(ledger.comm, ended);
    } catch (error) {
      // An error of a hook has no other receiver.
      emitWarning(String(error), "TwincclUnseenFailure");
    } finally {
      asked.delete(ledger);
    }
  };
  const look = (): void => {
    const now = new Map<Ledger, CommOp>();
    for (const ledger of communicators.ledgers) {
      const { oldest } = ledger;
      if (oldest === undefined) continue;
      now.set(ledger, oldest);
      if (before.get(ledger) === oldest && !asked.has(ledger)) void ask(ledger, oldest);
    }
    before = now;
  };
  const timer: { unref?: () => void } | number = setInterval(look, everyMs);
  if (typeof timer === "object") timer.unref?.();
  return () => clearInterval(timer as Parameters<typeof clearInterval>[0]);
}
