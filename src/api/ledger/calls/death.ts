/** The end of a communicator, as its ranks get it. */
import type { CommInfo, PeerProcesses } from "../../backend.ts";
import { callText } from "../../error-text.ts";
import { CommAbortedError, type CommError, type CommErrorFacts } from "../../errors.ts";
import type { CommOp } from "../../op.ts";

/** A call that fails because its communicator has ended. */
export interface FailedCall {
  readonly collective: string;
  /** -1 for one that was made too late to be numbered. */
  readonly call: number;
  /** Name of its communicator. */
  readonly comm: string;
}

/** Makes the error of a call on an ended communicator; `asker` is the world rank of the program that gets it. */
export type Death = (rank: number, asker: number, failed?: FailedCall) => CommError;

/** The facts of the call for an error about communicator `comm`; the number counts on the call's own one alone. */
export function callFacts(failed: FailedCall | undefined, comm: string): CommErrorFacts {
  if (failed === undefined) return {};
  const { collective, call } = failed;
  return failed.comm === comm ? { collective, call } : { collective };
}

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
  return (rank, _, failed) =>
    new CommAbortedError(
      { headline: callText(failed) + headline },
      { rank, size: ranks.length, comm: name, ranks: [op.rank], ...callFacts(failed, name), cause },
    );
}

/** Ranks of other processes may wait for this one's part: they learn why it does not come. */
export function tellOthers(others: PeerProcesses | undefined, comm: CommInfo, death: Death): void {
  if (others === undefined) return;
  const [rank = 0] = comm.local;
  const error = death(rank, comm.ranks[rank] as number);
  others.aborted(comm, error.cause instanceof Error ? error.cause : error);
}
