/** The end of a communicator, as its ranks get it. */
import type { CommInfo, OtherProcesses } from "../../backend.ts";
import { CommAbortedError, type CommError } from "../../errors.ts";
import type { CommOp } from "../../op.ts";

/** The open call of a rank of an ended communicator. */
export interface OpenCall {
  readonly collective: string;
  readonly call: number;
}

/** Makes the error that a rank of an ended communicator gets; `asker` is the world rank of the program that gets it. */
export type Death = (rank: number, asker: number, open?: OpenCall) => CommError;

/** A call that its signal takes back. */
export interface Cancelled {
  readonly wasSubmitted: boolean;
  /** Ranks elsewhere go on with the call, so that the communicator ends here. */
  readonly endsAll: boolean;
}

/** The end that a rank's call has brought, which cannot be taken back; `what` says how. */
export function deathAfter(
  { name, ranks }: CommInfo,
  op: CommOp,
  cause: CommError,
  what: string,
): Death {
  const headline = `"${name}" was aborted: rank ${op.rank} ${what} call ${op.call}`;
  return (rank) =>
    new CommAbortedError(
      { headline },
      { rank, size: ranks.length, comm: name, ranks: [op.rank], cause },
    );
}

/** Ranks of other processes may wait for this one's part: they learn why it does not come. */
export function tellOthers(others: OtherProcesses | undefined, comm: CommInfo, death: Death): void {
  if (others === undefined) return;
  const [rank = 0] = comm.local;
  const error = death(rank, comm.ranks[rank] as number);
  others.gaveUp(comm, error.cause instanceof Error ? error.cause : error);
}
