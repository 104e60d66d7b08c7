/** A rank of this process as a member of a communicator. */
import type { LocalRank } from "./local-rank.ts";

/** One rank's end of one communicator. */
export interface Member {
  /** Rank in the communicator. */
  readonly rank: number;
  readonly local: LocalRank;
  readonly handle: bigint;
}
