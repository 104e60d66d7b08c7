/** Recordings that a rank needs no more. */
import type { Session } from "../backend.ts";
import type { Ledger } from "../ledger/ledger.ts";

/** A rank replays a recording no more, which is given back once the replays made before are done; or none, at once. */
export function discard(ledger: Ledger, session: Session, rank: number, graph?: object): void {
  const giveBack = (): void => session.discard?.(ledger.comm, rank, graph);
  const open = graph === undefined ? [] : replaysOf(ledger, rank, graph);
  let left = open.length;
  if (left === 0) giveBack();
  // One that is cancelled before it is submitted settles before those that were made earlier.
  for (const { op } of open) {
    op.whenSettled(() => {
      left--;
      if (left === 0) giveBack();
    });
  }
}

/** The replays of a recording that have not settled. */
function replaysOf(ledger: Ledger, rank: number, graph: object): ReturnType<Ledger["pending"]> {
  ledger.goings.seal();
  return ledger.pending(rank).filter(({ call }) => call.graph === graph);
}
