/**
 * Calls of all ranks that were compared and are equal.
 *
 * Loops make the same calls again and again. A rank's call is then the same `Prepared` object. One identity check per rank
 * replaces the comparison, and the backend's work on the arguments is reused.
 */
import type { PlanCache, RankCall, RepeatedCall } from "../backend.ts";
import { disposalsSoFar } from "../buffer.ts";
import type { Prepared } from "../member/prepared.ts";
import { isReleased } from "./buffer-checks.ts";
import type { Posting } from "./posting.ts";

/** A matched call, which backends get as `CallSet.cache`. */
export class MatchedCall implements PlanCache {
  planned: object | undefined;
  repeat: RepeatedCall | undefined;
  /** The calls, by rank: those of this process. */
  readonly calls: readonly RankCall[];
  /** The prepared calls of the ranks. */
  readonly prepared: readonly Prepared<unknown>[];

  /** Number of disposals when the buffers of its calls were last seen to live. */
  #checkedAt = -1;

  private constructor(postings: readonly Posting[], calls: readonly RankCall[]) {
    this.calls = calls;
    this.prepared = postings.map(({ prepared }) => prepared);
  }

  /** The matched call of these postings; `undefined` when they have to be compared. */
  static lookup(postings: readonly Posting[]): MatchedCall | undefined {
    const known = postings[0]?.prepared.matched;
    if (known === undefined) return undefined;
    return known.#covers(postings) ? known : undefined;
  }

  /** Caches the result for calls that are equal. */
  static store(postings: readonly Posting[], calls: readonly RankCall[]): MatchedCall {
    const agreement = new MatchedCall(postings, calls);
    const [first] = postings;
    if (first !== undefined) first.prepared.matched = agreement;
    return agreement;
  }

  /**
   * True when no buffer of its calls was disposed: they are checked only after disposals. Memory that
   * can be transferred away belongs to sessions that lend it, and those repeat no calls.
   */
  buffersLive(): boolean {
    const disposals = disposalsSoFar();
    if (this.#checkedAt === disposals) return true;
    if (this.calls.some(isReleased)) return false;
    this.#checkedAt = disposals;
    return true;
  }

  #covers(postings: readonly Posting[]): boolean {
    const prepared = this.prepared;
    if (postings.length !== prepared.length) return false;
    for (let i = 0; i < prepared.length; i++) {
      if (postings[i]?.prepared !== prepared[i]) return false;
    }
    return true;
  }
}
