/**
 * Calls of all ranks that were compared and are equal.
 *
 * Loops make the same calls again and again. A rank's call is then the same `Prepared` object. One identity check per rank
 * replaces the comparison, and the backend's work on the arguments is reused.
 */
import type { PlanCache, RankCall, RepeatedCall } from "../backend.ts";
import { type DeviceBuffer, disposalsSoFar, memoryOf } from "../buffer.ts";
import { hasReceiveCounts, type Prepared } from "../member/prepared.ts";
import { isReleased } from "./buffer-checks.ts";
import type { Posting } from "./posting.ts";

/** A matched call, which backends get as `CallSet.cache`. */
export class MatchedCall implements PlanCache {
  // What a repetition reads comes first: it is one line of the processor's cache.
  repeat: RepeatedCall | undefined;
  /** The prepared calls of the ranks. */
  readonly prepared: readonly Prepared<unknown>[];
  /** Number of disposals when the buffers of its calls were last seen to live. */
  #checkedAt = -1;
  planned: object | undefined;
  /** The calls, by rank: those of this process. */
  readonly calls: readonly RankCall[];
  /** True when only a disposal of its buffers can invalidate it: no counts are exchanged, and no host memory is lent. */
  readonly isFixed: boolean;

  private constructor(postings: readonly Posting[], calls: readonly RankCall[]) {
    this.calls = calls;
    this.prepared = postings.map(({ prepared }) => prepared);
    this.isFixed = calls.every((call) => hasReceiveCounts(call) && !usesHostMemory(call));
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

  /** True when no buffer of its calls was disposed: they are checked only after disposals. */
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

/** A buffer of a call is the caller's own host memory, which may be transferred away. */
function usesHostMemory({ send, recv, recorded }: RankCall): boolean {
  return isBorrowed(send) || isBorrowed(recv) || recorded?.buffers.some(isBorrowed) === true;
}

function isBorrowed(buffer: DeviceBuffer | undefined): boolean {
  return buffer !== undefined && memoryOf(buffer).borrowed;
}
