/** The communicators that a split makes, under the variables of what is pinned. */
import type { CallSet, CommInfo } from "../../api/index.ts";
import type { NcclCommunicator } from "./calls/communicators.ts";
import { split, splitApart } from "./calls/splits.ts";
import { waitedFor } from "./device/waited-for.ts";
import { pinnedVariables } from "./process/pinned-start.ts";
import { startWithVariables, unpinned, withVariables } from "./process/start-variables.ts";
import type { SessionParts } from "./session.ts";

/** Makes them: here, or, where other members live in other processes, on a thread on which NCCL waits for these. */
export function childrenOf(
  { libraries, current, config, pin = {}, job }: SessionParts,
  parent: NcclCommunicator,
  { calls }: CallSet,
  children: readonly CommInfo[],
): NcclCommunicator[] | Promise<NcclCommunicator[]> {
  const { nccl } = libraries;
  const variables = pinnedVariables(pin);
  if (job === undefined) {
    // Where it has to wait, the parent may be over by then, and its handles with it: nothing is made of it.
    const splitHere = () =>
      parent.isOver ? [] : split(nccl, current, parent, calls, children, config);
    return unpinned(() => withVariables(variables, splitHere));
  }
  let begun: Promise<NcclCommunicator[]> | undefined;
  const begin = (): Promise<NcclCommunicator[]> => {
    const apart = () => splitApart(nccl, current, parent, children, config);
    begun = parent.otherThreads.during(apart);
    return begun;
  };
  const made = startWithVariables(variables, begin, parent.over).catch((error: unknown) => {
    // Communicators that NCCL still makes have no owner.
    begun?.then(abortAll, () => undefined);
    throw error;
  });
  return waitedFor(made.catch((error) => parent.leftOpen(error)));
}

/** Aborts communicators without a user; soon after, each is gone. */
export function abortAll(comms: readonly NcclCommunicator[]): void {
  for (const comm of comms) void comm.abort();
}
