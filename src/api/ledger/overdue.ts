/** A call that was not done in time: the question who has not come, and the error. Ranks are those of the communicator. */
import type { CommInfo, Session } from "../backend.ts";
import { ranksText } from "../error-text.ts";
import { CommTimeoutError } from "../errors.ts";
import type { CallQueue } from "./call-queue.ts";
import type { Lines } from "./lines.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import { headWait } from "./waits.ts";

/** Calls that are not done: those in the ranks' lines, and those that the session has. */
export interface OpenCalls {
  readonly lines: Lines;
  readonly queued: CallQueue;
}

/** The call that must be done first; `undefined` when none has a deadline. */
export function firstDue(postings: readonly Posting[]): Posting | undefined {
  const due = postings.filter(({ deadlinePs }) => deadlinePs !== undefined);
  return due.sort((a, b) => (a.deadlinePs ?? 0) - (b.deadlinePs ?? 0))[0];
}

/** What world ranks are on a communicator that they are members of. */
export function ownRanks({ ranks }: CommInfo, worldRanks: readonly number[]): readonly number[] {
  return worldRanks.map((worldRank) => ranks.indexOf(worldRank));
}

/**
 * Ranks that had not made a call when its deadline passed, or keep it waiting otherwise: in a job of several processes as they
 * say themselves.
 */
export async function missingRanks(
  session: Session,
  comm: CommInfo,
  posting: Posting,
  { lines, queued }: OpenCalls,
): Promise<readonly number[]> {
  const { rank, status, call } = posting.op;
  const here = status === "waiting" ? (headWait(comm, lines, rank)?.missing ?? []) : [];
  if (comm.local.length === comm.ranks.length) return ownRanks(comm, here);
  const { peer } = posting as Partial<TransferPosting>;
  if (peer === undefined) return ownRanks(comm, (await session.missing?.(comm, call)) ?? here);
  const together = [...lines.beside(posting), ...queued.beside(posting)] as TransferPosting[];
  const halves = together.filter(
    (half) => half.op.rank === rank && !comm.local.includes(half.peer),
  );
  if (halves.length === 0 || session.missingEnds === undefined) return [peer];
  return ownRanks(comm, await session.missingEnds(comm, halves));
}

/** The error of a call that was not done in time; `missing` are the ranks that had not made it. */
export function timeoutError(
  comm: CommInfo,
  posting: Posting,
  missing: readonly number[],
  isVirtual: boolean,
): CommTimeoutError {
  const { op, call, calledAtPs, deadlinePs = 0 } = posting;
  const allowed = `${(deadlinePs - calledAtPs) / 1e9} ms`;
  const why = whyOf(comm, posting, missing);
  const next = isVirtual ? "virtual time counts on the simulation" : nextStep(comm, missing);
  return new CommTimeoutError(
    {
      headline: `${call.collective}: call ${op.call} on "${comm.name}" was not done within ${allowed}: ${why}`,
      hint: `the communicator was aborted; ${next}`,
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

function whyOf({ local, ranks }: CommInfo, posting: Posting, missing: readonly number[]): string {
  const { peer } = posting as Partial<TransferPosting>;
  if (missing.length > 0) {
    // Messages that were made together wait for each other, and may wait for ranks that wait for third ones.
    const isOther = peer !== undefined && !missing.includes(peer);
    return `${ranksText(missing)} ${isOther ? "kept it waiting" : "had not made it"}`;
  }
  const isHeld = local.length < ranks.length && posting.op.status === "waiting";
  if (isHeld) return "an earlier call of this rank kept it waiting";
  return peer === undefined ? "all ranks had made it" : `rank ${peer} had made it too`;
}

/** What to do where time is real. Logs and processes go by the ranks of the world. */
function nextStep({ ranks, local }: CommInfo, missing: readonly number[]): string {
  if (missing.length === 0) {
    return "its work took longer: allow more with timeoutMs, or look at what else the devices and the network are busy with";
  }
  const those = ranksText(missing.map((rank) => ranks[rank] as number));
  return local.length === ranks.length
    ? `look at what ${those} of the world did instead, then go on with world.rebuild()`
    : `look at the logs of ${those} of the job, then go on with the survivors by comm.rebuild()`;
}
