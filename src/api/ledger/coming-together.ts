/**
 * Calls that wait until ranks of other processes have made them too, because handing them over would block this process
 * until then: no deadline, no signal and no loss would be heard.
 */
import { abandon, isPending, queued, type Work } from "./outcomes.ts";
import type { Posting } from "./posting.ts";
import type { ServeHost } from "./serve-host.ts";

/** Goes on once they have come, unless this rank has given the call up by then: the others do not hear of it. */
export function onceTogether(
  host: ServeHost,
  coming: Promise<void> | undefined,
  postings: readonly Posting[],
  go: () => Work,
): Work {
  if (coming === undefined) return go();
  return coming.then((): unknown => {
    const givenUp = postings.find((posting) => !isPending(posting));
    if (givenUp === undefined) return go();
    abandon(host, givenUp);
    return queued;
  });
}
