/** The errors of a call that failed: each of its ranks gets its own. */
import type { CommInfo, Session } from "../../backend.ts";
import { CommError } from "../../errors.ts";
import type { Posting } from "./posting.ts";

/** Thrown while a set is being prepared; never seen by callers, which get the error made for their rank. */
export class UnservedError extends Error {
  readonly forRank: (rank: number, posting: Posting) => CommError;

  constructor(forRank: (rank: number, posting: Posting) => CommError) {
    super("the call cannot be served");
    this.forRank = forRank;
  }
}

/** Where a call failed. */
interface Place {
  readonly session: Session;
  readonly comm: CommInfo;
}

/** The error of each rank's call: one made for ranks, or what went wrong as the rank sees it. */
export function errorByCall(error: unknown, place: Place): (posting: Posting) => unknown {
  if (error instanceof UnservedError) return (posting) => error.forRank(posting.op.rank, posting);
  if (!(error instanceof CommError)) return () => error;
  const { session, comm } = place;
  return ({ op, call: { collective } }) =>
    error.seenBy({
      rank: op.rank,
      size: comm.ranks.length,
      comm: comm.name,
      collective,
      call: op.call < 0 ? undefined : op.call,
      device: session.device(op.worldRank),
    });
}
