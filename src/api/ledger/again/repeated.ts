/** Calls that a rank makes again with the same arguments: which sessions take them without a word, and how they are posted. */
import type { RankCall, Session } from "../../backend.ts";
import type { Prepared } from "../../member/prepared.ts";
import type { CommOp } from "../../op.ts";
import { deadlineFrom, type Posting } from "../calls/posting.ts";

/** True for a session that queues calls again and asks for nothing more about each: whether to refuse it, or when in virtual time. */
export function repeatsFreely(session: Session): boolean {
  const { enqueueRepeated, compare, onPosted, bufferGuard, clock } = session;
  if (enqueueRepeated === undefined) return false;
  return (compare ?? onPosted ?? bufferGuard ?? clock) === undefined;
}

/** The posting of a call as it was made before, where time is real. */
export function repeated(
  prepared: Prepared<unknown>,
  op: CommOp,
  timeoutMs: number | undefined,
): Posting {
  const call = prepared.made as RankCall;
  const deadlinePs = deadlineFrom(0, timeoutMs);
  return { call, prepared, op, calledAtPs: 0, deadlinePs, cancellable: false };
}
