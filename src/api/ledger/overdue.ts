/** A call that was not done in time: the question who has not come, and the error. */
import type { CommInfo, Session } from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommTimeoutError } from "../errors.ts";
import type { Posting, TransferPosting } from "./posting.ts";

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

/** The error of a call that was not done in time; `missing` are the ranks that had not made it. */
export function timeoutError(
  comm: CommInfo,
  posting: Posting,
  missing: readonly number[],
): CommTimeoutError {
  const { op, call, calledAtPs, deadlinePs = 0 } = posting;
  const allowed = `${(deadlinePs - calledAtPs) / 1e9} ms`;
  const why =
    missing.length === 0 ? "all ranks had made it" : `${ranksText(missing)} had not made it`;
  return new CommTimeoutError(
    {
      headline: `${call.collective}: call ${op.call} on "${comm.name}" was not done within ${allowed}: ${why}`,
      hint: "the communicator was aborted; virtual time counts on the simulation",
    },
    {
      rank: op.rank,
      size: comm.ranks.length,
      comm: comm.name,
      collective: call.collective,
      call: op.call,
      ranks: missing,
    },
  );
}
