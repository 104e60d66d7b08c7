/** A generation that is being formed: its requests so far, and when it is complete. */
import { ranksText } from "../../../api/error-text.ts";
import { after, type Generation, type Peer, type Told } from "./generation.ts";
import type { Failure } from "./protocol.ts";

/** A request to be in the next generation. */
interface Arrival {
  readonly peer: Peer;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** The ranks that a gathering waits for: fresh ranks, or survivors of the generation before. */
export type Purpose =
  | { readonly kind: "join"; readonly size: number }
  | {
      readonly kind: "rejoin";
      readonly from: Generation;
      readonly without: readonly number[] | undefined;
    };

/** A member of the new generation, in rank order. */
export interface Member {
  readonly peer: Peer;
  readonly id: number;
  readonly initialRank: number;
}

/** The store's side of a gathering. */
interface GatheringEvents {
  /** Complete; `members` are the new ranks in order. */
  formed(members: readonly Member[]): void;
  /** It has no requests left. */
  empty(): void;
}

/** One gathering. Ranks in it are those of the requests: new ones to join, old ones to rejoin. */
export class Gathering {
  readonly generation: number;
  readonly purpose: Purpose;
  readonly #events: GatheringEvents;
  readonly #arrivals = new Map<number, Arrival>();
  /** Ranks with deadlines that have passed; for the diagnosis of the others they were there. */
  readonly #expired = new Set<number>();
  #settle: NodeJS.Timeout | undefined;

  constructor(generation: number, purpose: Purpose, events: GatheringEvents) {
    this.generation = generation;
    this.purpose = purpose;
    this.#events = events;
  }

  /** The request with that rank here. */
  holder(rank: number): Peer | undefined {
    return this.#arrivals.get(rank)?.peer;
  }

  /** Adds a request. */
  arrive(rank: number, peer: Peer, id: number, timeoutMs: number, settleMs: number): void {
    const timer = after(timeoutMs, () => {
      const failure = this.#late(timeoutMs);
      this.#expired.add(rank);
      this.#remove(rank);
      fail(peer, id, failure);
    });
    this.#expired.delete(rank);
    this.#arrivals.set(rank, { peer, id, timer });
    clearTimeout(this.#settle);
    if (this.purpose.kind === "rejoin" && this.purpose.without === undefined) {
      this.#settle = after(settleMs, () => this.#form());
    }
    this.check();
  }

  /** Removes a request. */
  withdraw(peer: Peer, id?: number): void {
    for (const [rank, arrival] of this.#arrivals) {
      if (arrival.peer === peer && (id === undefined || arrival.id === id)) this.#remove(rank);
    }
  }

  /** Forms the generation when it is complete, and fails when it can no longer be. */
  check(): void {
    if (this.#arrivals.size === 0) return;
    const { purpose } = this;
    if (purpose.kind === "rejoin" && purpose.without !== undefined) {
      const gone = this.#expected().filter((rank) => purpose.from.seats[rank]?.state !== "here");
      if (gone.length > 0) {
        this.fail(goneMeanwhile(purpose.from, gone));
        return;
      }
    }
    if (this.#missing().length === 0) this.#form();
  }

  /** Ends it: all requests in it fail. */
  fail(failure: Told): void {
    const arrivals = [...this.#arrivals.values()];
    this.#clear();
    for (const { peer, id } of arrivals) fail(peer, id, failure);
    this.#events.empty();
  }

  #form(): void {
    const ranks = [...this.#arrivals.keys()].sort((a, b) => a - b);
    const members = ranks.map((rank): Member => {
      const { peer, id } = this.#arrivals.get(rank) as Arrival;
      const { purpose } = this;
      const before = purpose.kind === "rejoin" ? purpose.from.seats[rank]?.initialRank : rank;
      return { peer, id, initialRank: before ?? rank };
    });
    this.#clear();
    this.#events.formed(members);
  }

  /** The ranks that would complete it. */
  #expected(): number[] {
    const { purpose } = this;
    if (purpose.kind === "join") return Array.from({ length: purpose.size }, (_, rank) => rank);
    const { from, without } = purpose;
    if (without === undefined) return from.here;
    return from.seats.map((_, rank) => rank).filter((rank) => !without.includes(rank));
  }

  #missing(): number[] {
    return this.#expected().filter((rank) => !this.#arrivals.has(rank));
  }

  #late(timeoutMs: number): Failure {
    const joined = [...this.#arrivals.keys(), ...this.#expired].sort((a, b) => a - b);
    const missing = this.#missing().filter((rank) => !this.#expired.has(rank));
    const verb = this.purpose.kind === "join" ? "joined" : "rejoined";
    const all = joined.length + missing.length;
    return {
      code: "timeout",
      headline: `${joined.length} of ${all} ${verb} within ${timeoutMs} ms, missing ${ranksText(missing)}`,
      hint: `look at the output of ${ranksText(missing)}: it may have failed to start, or have another job id or address`,
      ranks: missing,
      joined,
    };
  }

  #remove(rank: number): void {
    clearTimeout(this.#arrivals.get(rank)?.timer);
    this.#arrivals.delete(rank);
    if (this.#arrivals.size > 0) return;
    this.#clear();
    this.#events.empty();
  }

  #clear(): void {
    clearTimeout(this.#settle);
    for (const { timer } of this.#arrivals.values()) clearTimeout(timer);
    this.#arrivals.clear();
  }
}

/** Sends a failure. */
export function fail(peer: Peer, id: number, failure: Told): void {
  peer.send({ kind: "failed", id, ranks: [], joined: [], ...failure });
}

function goneMeanwhile(from: Generation, gone: readonly number[]): Told {
  const reasons = gone.map((rank) => {
    const seat = from.seats[rank];
    return `rank ${rank} ${seat?.state === "left" ? "has left" : `was lost: ${seat?.reason}`}`;
  });
  return {
    code: "gone",
    headline: `rebuild: ${reasons.join("; ")}`,
    hint: `give rebuild ${ranksText(gone)} in without too`,
    ranks: gone,
  };
}
