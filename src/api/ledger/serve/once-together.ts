/** The rest of a call that had to wait for ranks of other processes. */
import type { PeerBarrier } from "../../backend.ts";
import type { Posting } from "../calls/posting.ts";
import { errorByCall } from "../calls/unserved.ts";
import { abandon, isPending } from "./outcomes.ts";
import type { ServeHost } from "./serve-host.ts";

/** The action on it then. */
interface Then<T> {
  readonly go: () => T;
  /** For others that have come, and are blocked until they meet this process, when no rank here waits for the call any more. */
  readonly anyway: () => void;
}

/**
 * Waits for the others, and goes on. Where a rank of this process has given the call up by then, or one of the others will
 * not come, the communicator is over here.
 */
export async function onceTogether<T>(
  host: ServeHost,
  convening: PeerBarrier,
  postings: readonly Posting[],
  { go, anyway }: Then<T>,
): Promise<T | undefined> {
  let together = false;
  try {
    together = await host.coming.wait(convening);
  } catch (error) {
    const errorOf = errorByCall(error, host);
    for (const posting of postings) host.fail(posting, errorOf(posting));
  }
  const givenUp = postings.find((posting) => !isPending(posting));
  if (together && givenUp === undefined) return go();
  try {
    if (together) anyway();
  } catch {
    // Its own call has failed before.
  }
  abandon(host, givenUp ?? (postings[0] as Posting));
  return undefined;
}
