/** The join phase of a generation: its requests so far, and the condition that completes it. */
import { ranksText } from "../api/error-text.ts";
import { Barrier } from "./barrier.ts";
import {
  after,
  type Generation,
  lossFailure,
  type PartialFailure,
  type Peer,
} from "./generation.ts";
import type { Failure } from "./protocol.ts";

/** A request to be in the next generation. */
interface JoinRequest {
  readonly peer: Peer;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** The ranks that a join phase waits for: fresh ranks, or survivors of the generation before. */
export type JoinPurpose =
  | { readonly kind: "join"; readonly size: number }
  | {
      readonly kind: "rejoin";
      readonly from: Generation;
      readonly without: readonly number[] | undefined;
    };

/** A member of the new generation, in rank order. */
export interface NewMember {
  readonly peer: Peer;
  readonly id: number;
  readonly initialRank: number;
}

/** The store's side of a join phase. */
interface JoinPhaseEvents {
  /** Complete; `members` are the new ranks in order. */
  formed(members: readonly NewMember[]): void;
  /** It has no requests left. */
  empty(): void;
}

/** One join phase. Ranks in it are those of the requests: new ones to join, old ones to rejoin. */
export class JoinPhase {
  readonly generation: number;
  readonly purpose: JoinPurpose;
  readonly #events: JoinPhaseEvents;
  readonly #barrier = new Barrier<JoinRequest>();
  /** Ranks with deadlines that have passed; for the diagnosis of the others they were there. */
  readonly #expired = new Set<number>();
  #settle: NodeJS.Timeout | undefined;

  constructor(generation: number, purpose: JoinPurpose, events: JoinPhaseEvents) {
    this.generation = generation;
    this.purpose = purpose;
    this.#events = events;
  }

  /** The request with that rank here. */
  holder(rank: number): Peer | undefined {
    return this.#barrier.of(rank)?.peer;
  }

  /** Adds a request. */
  add(rank: number, peer: Peer, id: number, timeoutMs: number, settleMs: number): void {
    const timer = after(timeoutMs, () => {
      const failure = this.#timeout(timeoutMs);
      this.#expired.add(rank);
      this.#remove(rank);
      fail(peer, id, failure);
    });
    this.#expired.delete(rank);
    this.#barrier.arrive(rank, { peer, id, timer });
    clearTimeout(this.#settle);
    if (this.purpose.kind === "rejoin" && this.purpose.without === undefined) {
      this.#settle = after(settleMs, () => this.#form());
    }
    this.check();
  }

  /** Removes a request. */
  withdraw(peer: Peer, id?: number): void {
    for (const [rank, arrival] of this.#barrier.entries()) {
      if (arrival.peer === peer && (id === undefined || arrival.id === id)) this.#remove(rank);
    }
  }

  /** Forms the generation when it is complete, and fails when it can no longer be. */
  check(): void {
    if (this.#barrier.isEmpty) return;
    const { purpose } = this;
    if (purpose.kind === "rejoin" && purpose.without !== undefined) {
      const gone = this.#expected().filter((rank) => purpose.from.members[rank]?.state !== "here");
      if (gone.length > 0) {
        this.fail(joinLossFailure(purpose.from, gone));
        return;
      }
    }
    if (this.#missing().length === 0) this.#form();
  }

  /** Ends it: all requests in it fail. */
  fail(failure: PartialFailure): void {
    for (const [, { peer, id }] of this.#takeAll()) fail(peer, id, failure);
    this.#events.empty();
  }

  #form(): void {
    const { purpose } = this;
    const members = this.#takeAll().map(([rank, { peer, id }]): NewMember => {
      const before = purpose.kind === "rejoin" ? purpose.from.members[rank]?.initialRank : rank;
      return { peer, id, initialRank: before ?? rank };
    });
    this.#events.formed(members);
  }

  /** The ranks that would complete it. */
  #expected(): number[] {
    const { purpose } = this;
    if (purpose.kind === "join") return Array.from({ length: purpose.size }, (_, rank) => rank);
    const { from, without } = purpose;
    if (without === undefined) return from.presentRanks;
    const others = new Set(without);
    return from.members.map((_, rank) => rank).filter((rank) => !others.has(rank));
  }

  #missing(): number[] {
    return this.#barrier.missing(this.#expected());
  }

  #timeout(timeoutMs: number): Failure {
    const joined = [...this.#barrier.arrived, ...this.#expired].sort((a, b) => a - b);
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
    this.#barrier.leave(rank);
    if (!this.#barrier.isEmpty) return;
    clearTimeout(this.#settle);
    this.#events.empty();
  }

  #takeAll(): readonly (readonly [number, JoinRequest])[] {
    clearTimeout(this.#settle);
    return this.#barrier.takeAll();
  }
}

/** Sends a failure. */
export function fail(peer: Peer, id: number, failure: PartialFailure): void {
  peer.send({ kind: "failed", id, ranks: [], joined: [], ...failure });
}

function joinLossFailure(from: Generation, gone: readonly number[]): PartialFailure {
  const failure = lossFailure(from.members, "rebuild", gone);
  return { ...failure, hint: `give rebuild ${ranksText(gone)} in without too` };
}
