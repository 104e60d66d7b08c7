/** Calls that a session observes when they are posted, beside serving them. */
import type { CommInfo, RankCall, Session } from "../backend.ts";
import type { CommOp } from "../op.ts";

/** Reports a call to its session, as far as that observes calls. */
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
 * The time at which a rank got the failure of its call: that of the failure, or, where that has none, as of deadlocks and
 * aborts, the latest time of all ranks.
 */
function toldAtPs({ clock, size }: Session, { postedAtPs }: RankCall, op: CommOp): number {
  if (op.finishedAtPs > 0 || clock === undefined) return Math.max(postedAtPs, op.finishedAtPs);
  let latestPs = postedAtPs;
  for (let rank = 0; rank < size; rank++) latestPs = Math.max(latestPs, clock.now(rank));
  return latestPs;
}
