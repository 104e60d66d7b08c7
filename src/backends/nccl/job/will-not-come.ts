/** The error of a call that waited in the job's store for ranks of which one is gone. */
import { ranksText } from "../../../api/error-text.ts";
import { type CommError, type CommInfo, RemoteRankError } from "../../../api/index.ts";

/** The store names ranks of the job; the error of a call names those of its communicator. Any other error stays as it was. */
export function willNotCome(comm: CommInfo, error: unknown): unknown {
  const { code, ranks = [] } = error as Partial<CommError>;
  if (code !== "ERR_COMM_REMOTE") return error;
  const own = ranks.map((rank) => comm.ranks.indexOf(rank));
  return new RemoteRankError(
    {
      headline: `${ranksText(own)} of "${comm.name}" will not make this call: its process has left the job, or is gone`,
      hint: "comm.rebuild() goes on with the others",
    },
    { ranks: own, cause: error },
  );
}
