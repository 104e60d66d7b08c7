/** A rank's way into the store, which may still serve the life of the job that this rank has left. */

import { RendezvousError } from "../../../api/index.ts";
import type { JoinArguments } from "./checks.ts";
import { pause } from "./connect-session.ts";
import { StillInUseError } from "./failures.ts";
import type { Membership } from "./rendezvous.ts";
import type { Session } from "./session.ts";
import { type Connection, joinStore } from "./store-membership.ts";

const firstPauseMs = 10;
const longestPauseMs = 500;

/**
 * Joins. Tries again until the deadline while other ranks have not left the life before, and when the connection ends before
 * the store has answered: nothing that strangers or the network do to one connection keeps a rank out for good.
 *
 * @param reach Gives a session with the store, within that many milliseconds: of another store once the first is gone.
 */
export async function enter(
  place: Omit<Connection, "session">,
  asked: JoinArguments,
  reach: (deadlineMs: number) => Promise<Session>,
): Promise<Membership> {
  const end = performance.now() + asked.deadlineMs;
  const leftMs = (): number => Math.max(0, Math.round(end - performance.now()));
  let refusal: unknown;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
    const reachMs = leftMs();
    const session = await reach(reachMs).catch((error: unknown) => {
      // With hardly any time left a missing store is not certain.
      throw reachMs < longestPauseMs && error instanceof RendezvousError
        ? (refusal ?? error)
        : error;
    });
    try {
      return await joinStore({ ...place, session }, { ...asked, deadlineMs: leftMs() });
    } catch (error) {
      const mayReturn = error instanceof StillInUseError || session.hasEnded;
      session.destroy();
      if (!mayReturn || leftMs() <= pauseMs) throw error;
      refusal = error;
    }
    await pause(pauseMs, asked.signal);
  }
}
