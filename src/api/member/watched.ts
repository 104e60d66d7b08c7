/** What a session asks to be told of the calls that are posted, beside serving them. */
import type { CommInfo, RankCall, Session } from "../backend.ts";
import type { CommOp } from "../op.ts";

/** Has a session told of a call, as far as it asks for that. */
export function watch(session: Session, comm: CommInfo, call: RankCall, op: CommOp): void {
  const { lending } = session;
  if (lending !== undefined) {
    lending.lend(comm, call);
    op.whenSettled(() => lending.settled(call));
  }
  if (session.failed === undefined) return;
  op.whenFinal((error) => {
    // What was refused has no number: it was not posted.
    if (op.status !== "failed" || op.call < 0) return;
    session.failed?.(comm, { call, number: op.call, error, atPs: toldAtPs(session, call, op) });
  });
}

/**
 * When a rank was told that its call failed: with the time of the failure, or, where that has none, as deadlocks and aborts
 * have, once all has happened that had by then.
 */
function toldAtPs({ clock, size }: Session, { postedAtPs }: RankCall, op: CommOp): number {
  if (op.finishedAtPs > 0 || clock === undefined) return Math.max(postedAtPs, op.finishedAtPs);
  let latestPs = postedAtPs;
  for (let rank = 0; rank < size; rank++) latestPs = Math.max(latestPs, clock.now(rank));
  return latestPs;
}
