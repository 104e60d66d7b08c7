/** Deadlines where time is real: a timer for each, and the question who has not come. */
import type { CommInfo, Session } from "../backend.ts";
import type { Posting, TransferPosting } from "./posting.ts";

/** Calls `expire` when a call is not done in time; a call without a deadline is not watched. */
export function watchDeadline(posting: Posting, expire: () => Promise<void>): void {
  const { op, call, deadlinePs } = posting;
  if (deadlinePs === undefined) return;
  const timer = setTimeout(() => void expire(), (deadlinePs - call.postedAtPs) / 1e9);
  op.whenSettled(() => clearTimeout(timer));
}

/** World ranks that had not made a call when its deadline passed: `here`, or in a job of several processes those that say so. */
export async function missingRanks(
  session: Session,
  comm: CommInfo,
  posting: Posting,
  here: readonly number[],
): Promise<readonly number[]> {
  if (comm.local.length === comm.ranks.length) return here;
  const { peer } = posting as Partial<TransferPosting>;
  if (peer !== undefined) return [comm.ranks[peer] as number];
  return (await session.missing?.(comm, posting.op.call)) ?? here;
}
