/** Calls that a rank makes again, where nobody waits for them but by their operations. */
import type { RankCall, Session } from "../backend.ts";
import type { Prepared } from "../member/prepared.ts";
import type { CommOp } from "../op.ts";
import type { Posting } from "./posting.ts";

/** True for a session that queues calls again and asks for nothing more about each: whether to refuse it, or when it is late. */
export function repeatsFreely(session: Session): boolean {
  const { enqueueAgain, signatures, posted, lending, clock, timeoutMs } = session;
  if (enqueueAgain === undefined) return false;
  return (signatures ?? posted ?? lending ?? clock ?? timeoutMs) === undefined;
}

/** The posting of a call as it was made before. */
export function repeated(call: RankCall, prepared: Prepared<unknown>, op: CommOp): Posting {
  return { call, prepared, op, calledAtPs: 0, deadlinePs: undefined, cancellable: false };
}
