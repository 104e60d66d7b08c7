/** The communicators that a split makes, under the variables of what is pinned. */
import type { CallSet, CommInfo } from "../../api/index.ts";
import type { NcclCommunicator } from "./calls/communicators.ts";
import { split, splitApart } from "./calls/splits.ts";
import { waitedFor } from "./device/waited-for.ts";
import { pinnedVariables } from "./process/pinned-start.ts";
import { startWithVariables, withVariables } from "./process/variables.ts";
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
    return withVariables(variables, () => split(nccl, current, parent, calls, children, config));
  }
  const begin = () => splitApart(nccl, current, parent, children, config);
  return waitedFor(startWithVariables(variables, begin, parent.over));
}
