/**
 * The store of one job: forms its generations, each after a join phase, and serves the latest one. It is free of sockets: the
 * server passes it peers that have proven their identity.
 */
import { ranksText } from "../api/error-text.ts";
import {
  after,
  type FailureText,
  Generation,
  lossFailure,
  type Member,
  type PartialFailure,
  type Peer,
} from "./generation.ts";
import type { Failure, Request } from "./protocol.ts";
import { Barrier } from "./waits.ts";

/** The job of a store. */
export interface StoreOptions {
  readonly jobId: string;
  /** Number of ranks of the job. */
  readonly size: number;
  /** True when the process of rank 0 hosts it, so that it ends with that process. */
  readonly hosted: boolean;
}

type Join = Extract<Request, { kind: "join" }>;
type Rejoin = Extract<Request, { kind: "rejoin" }>;

/** A request of a rank, once it has joined. */
export type StoreRequest = Exclude<Request, Join | { kind: "hello" | "liveness" | "leave" }>;

/** One job's store. */
export class Store {
  readonly #options: StoreOptions;
  /** The generation and rank of each peer; a peer that is gone has no entry. */
  readonly #places = new Map<Peer, { readonly generation: Generation; readonly rank: number }>();
  readonly #joining = new Set<Peer>();
  /** Ranks of the job that have left since it last restarted. */
  readonly #left = new Set<number>();
  /** Ends of processes in words, by rank. */
  readonly #ended = new Map<number, string>();
  /** The peers of fresh ranks that have asked to join the next generation, except those that were gone before the answer. */
  readonly #asked = new Map<number, Peer>();
  #latest: Generation | undefined;
  #joinPhase: JoinPhase | undefined;

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  /** A join request; false when it is refused. */
  join(peer: Peer, request: Join): boolean {
    const refusal = this.#refusal(request);
    if (refusal !== undefined) {
      fail(peer, request.id, refusal);
      return false;
    }
    const { generation, rank, size } = request;
    this.#joinPhase ??= this.#beginJoinPhase(generation, { kind: "join", size });
    this.#joining.add(peer);
    this.#asked.set(rank, peer);
    this.#joinPhase.add(rank, peer, request.id, request.timeoutMs, 0, request.limitMs);
    this.#failWithoutEnded();
    return true;
  }

  /** The process of a rank has ended: where it has not joined, those that wait for it fail. */
  ended(rank: number, how: string): void {
    this.#ended.set(rank, how);
    this.#failWithoutEnded();
  }

  /** A request of a peer that has joined. */
  request(peer: Peer, request: StoreRequest): void {
    const place = this.#places.get(peer);
    if (request.kind === "cancel") {
      this.#joinPhase?.withdraw(peer, request.id);
      place?.generation.cancel(place.rank, request.id);
      return;
    }
    // Any other number is of a past generation of the peer.
    const isPast = place?.generation.number !== request.generation;
    if (request.kind === "announce" || request.kind === "answer") {
      if (isPast) return;
      if (request.kind === "announce") place.generation.announce(place.rank, request);
      else place.generation.answer(place.rank, request);
      return;
    }
    if (isPast) {
      fail(peer, request.id, {
        code: "over",
        headline: `${request.kind}: generation ${request.generation + 1} is over`,
        hint: "use the communicator that rebuild() gave",
      });
      return;
    }
    const { generation, rank } = place;
    switch (request.kind) {
      case "set":
        generation.set(rank, request.id, request.key, request.value);
        return;
      case "get":
        generation.get(rank, request);
        return;
      case "barrier":
        generation.wait(rank, request);
        return;
      case "ask":
        generation.ask(rank, request);
        return;
      case "rejoin":
        this.#rejoin(peer, rank, generation, request);
        return;
    }
  }

  /** A peer left, or its connection ended. */
  gone(peer: Peer, state: "lost" | "left", reason: string, status?: string): void {
    const place = this.#places.get(peer);
    this.#joining.delete(peer);
    this.#places.delete(peer);
    for (const [rank, asking] of this.#asked) {
      if (asking === peer && this.#joinPhase?.holder(rank) === peer) this.#asked.delete(rank);
    }
    this.#joinPhase?.withdraw(peer);
    const initialRank = place?.generation.members[place.rank]?.initialRank;
    if (state === "left" && initialRank !== undefined) this.#left.add(initialRank);
    place?.generation.gone(place.rank, state, reason, status);
    if (place !== undefined && place.generation === this.#latest) this.#joinPhase?.check();
    this.#failWithoutEnded();
  }

  /** Closes the store: all waits fail. */
  close(): void {
    const failure: FailureText = {
      code: "refused",
      headline: "the store was closed by its host",
      hint: "the job is over, or its launcher ended",
    };
    this.#joinPhase?.fail(failure);
    for (const { generation } of this.#places.values()) {
      generation.end({ ...failure, ranks: [], joined: [] });
    }
    this.#places.clear();
    this.#joining.clear();
  }

  /**
   * Fails a join phase of fresh ranks where it waits for a process that has ended. A rank whose own join has failed before is blamed
   * once no other is missing: until then it would hide the rank that it waited for.
   */
  #failWithoutEnded(): void {
    const joinPhase = this.#joinPhase;
    if (joinPhase?.purpose.kind !== "join") return;
    const { missing } = joinPhase;
    const ended = missing.filter((rank) => this.#ended.has(rank));
    const unasked = ended.filter((rank) => !this.#asked.has(rank));
    const isLast = unasked.length === 0 && ended.length === missing.length;
    const ranks = isLast ? ended : unasked;
    const [first] = ranks;
    if (first === undefined) return;
    const joined = this.#latest === undefined ? "joined" : "joined again";
    const all = ranks.length > 1 ? `${ranksText(ranks)} ended before they ${joined}; ` : "";
    joinPhase.fail({
      code: "gone",
      headline: `${all}rank ${first} ended before it ${joined}: ${this.#ended.get(first)}`,
      hint: `look at the output of ${ranksText(ranks)}: every rank of a job calls connect()`,
      ranks,
      joined: joinPhase.arrived,
    });
  }

  #refusal({ jobId, rank, size, generation }: Join): PartialFailure | undefined {
    const here = this.#options;
    const wrong = (headline: string, hint: string, ranks: readonly number[] = []) => {
      return { code: "refused" as const, headline: `join: ${headline}`, hint, ranks };
    };
    if (jobId !== here.jobId) {
      return wrong(
        `the job here is "${here.jobId}", not "${jobId}"`,
        "a variable of an earlier job may still be set, or two jobs share an address",
      );
    }
    const isFirst = this.#latest === undefined;
    const most =
      this.#joinPhase?.purpose.kind === "join" ? this.#joinPhase.purpose.size : here.size;
    const fits = isFirst || this.#joinPhase !== undefined ? size === most : size <= most;
    if (!fits)
      return wrong(`this job has ${most} ranks, not ${size}`, "give every rank the same size");
    if (rank >= size)
      return wrong(`rank ${rank} does not exist in ${size} ranks`, "ranks count from 0");
    const joinPhase = this.#joinPhase;
    const latest = this.#latest;
    const isOver = latest === undefined || latest.presentRanks.length === 0;
    if (joinPhase !== undefined && generation === joinPhase.generation) {
      if (joinPhase.purpose.kind === "rejoin") {
        return wrong(`survivors are forming generation ${generation}`, "only they may be in it");
      }
      const holder = joinPhase.holder(rank);
      return holder && wrong(...takenText(rank, holder), [rank]);
    }
    // With rank 0 the store that it hosts leaves too, and the job restarts at another.
    const isHere = !here.hosted || latest === undefined;
    if (joinPhase === undefined && isHere && isOver) return undefined;
    if (joinPhase === undefined && generation === (latest?.number ?? -1) + 1) return undefined;
    const waits = this.#left.has(rank) && joinPhase?.purpose.kind !== "join";
    if (waits && latest !== undefined) return inUse(latest);
    const holder = generation === latest?.number ? latest.members[rank] : undefined;
    if (holder?.state === "here") return wrong(...takenText(rank, holder.peer), [rank]);
    const next = joinPhase?.generation ?? (latest?.number ?? -1) + 1;
    return wrong(
      generation < next
        ? `generation ${generation} is complete, and a rank that was lost cannot come back to it`
        : `the next generation is ${next}, not ${generation}`,
      `join generation ${next} on every rank, or let the survivors rejoin`,
    );
  }

  #rejoin(peer: Peer, rank: number, from: Generation, request: Rejoin): void {
    const without = request.without && [...new Set(request.without)].sort((a, b) => a - b);
    const refuse = (headline: string, hint: string): FailureText => {
      return { code: "refused", headline: `rebuild: ${headline}`, hint };
    };
    if (from.over !== undefined) {
      fail(peer, request.id, from.over);
      return;
    }
    if (without?.includes(rank) === true) {
      const text = `rank ${rank} asks to go on without itself`;
      fail(peer, request.id, refuse(text, "leave out of without the rank that asks"));
      return;
    }
    const purpose = { kind: "rejoin", from, without } as const;
    this.#joinPhase ??= this.#beginJoinPhase(from.number + 1, purpose);
    const joinPhase = this.#joinPhase;
    if (joinPhase.purpose.kind !== "rejoin") {
      const text = `generation ${joinPhase.generation + 1} is being joined by fresh processes`;
      fail(peer, request.id, refuse(text, "join it instead"));
      return;
    }
    if (joinPhase.holder(rank) !== undefined) {
      const text = `rank ${rank} has already joined this rebuild`;
      fail(peer, request.id, refuse(text, "await the first rebuild()"));
      return;
    }
    const otherWithout = joinPhase.purpose.without;
    if (String(otherWithout) !== String(without)) {
      const text = `survivors disagree: rank ${rank} goes on ${withoutText(without)}, another ${withoutText(otherWithout)}`;
      const words = refuse(text, "every survivor gives the same ranks, or none gives any");
      fail(peer, request.id, words);
      joinPhase.fail(words);
      return;
    }
    joinPhase.add(rank, peer, request.id, request.timeoutMs, request.settleMs);
  }

  #beginJoinPhase(generation: number, purpose: JoinPhase["purpose"]): JoinPhase {
    const joinPhase = new JoinPhase(generation, purpose, {
      formed: (members) => this.#formed(generation, members),
      empty: () => {
        if (this.#joinPhase === joinPhase) this.#joinPhase = undefined;
      },
    });
    return joinPhase;
  }

  #formed(number: number, joined: readonly NewMember[]): void {
    const before = this.#latest;
    if (this.#joinPhase?.purpose.kind === "join") this.#left.clear();
    const members = joined.map(
      ({ peer, initialRank }): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const generation = new Generation(number, members);
    this.#joinPhase = undefined;
    this.#asked.clear();
    this.#latest = generation;
    for (const [rank, { peer }] of joined.entries()) {
      this.#joining.delete(peer);
      this.#places.set(peer, { generation, rank });
    }
    before?.endFor(generation, new Set(joined.map(({ peer }) => peer)));
    const initialRanks = members.map(({ initialRank }) => initialRank);
    for (const [rank, { peer, id }] of joined.entries()) {
      const { hosted } = this.#options;
      peer.send({ kind: "joined", id, generation: number, rank, initialRanks, hosted });
    }
  }
}

/** The error of a rank that has left a job in which others still are. */
function inUse({ members }: Generation): PartialFailure {
  const ranks = members.flatMap(({ state, initialRank }) =>
    state === "here" ? [initialRank] : [],
  );
  return {
    code: "in use",
    headline: `join: this rank has left the job, and ${ranks.length === 0 ? "its host" : ranksText(ranks)} not yet`,
    hint: "a job restarts once all its ranks have closed; see whether they do",
    ranks,
  };
}

function takenText(rank: number, holder: Peer): [string, string] {
  return [
    `rank ${rank} is taken by ${holder.label}`,
    "the first one stays; two processes were given the same rank, or an earlier run still lives",
  ];
}

function withoutText(without: readonly number[] | undefined): string {
  return without === undefined ? "with all that ask" : `without ${ranksText(without)}`;
}

// The join phase of a generation: its requests so far, and the condition that completes it.

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

  /** The ranks with a request here. */
  get arrived(): readonly number[] {
    return [...this.#barrier.arrived].sort((a, b) => a - b);
  }

  /** The other ranks that would complete it. */
  get missing(): readonly number[] {
    return this.#barrier.missing(this.#expected());
  }

  /** Adds a request. */
  add(
    rank: number,
    peer: Peer,
    id: number,
    timeoutMs: number,
    settleMs: number,
    limitMs = timeoutMs,
  ): void {
    const timer = after(timeoutMs, () => {
      const failure = this.#timeout(limitMs);
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
    if (this.missing.length === 0) this.#form();
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

  #timeout(limitMs: number): Failure {
    const absent = this.missing.filter((rank) => !this.#expired.has(rank));
    // Where no rank is absent, the wait was for those whose deadline has passed.
    const [joined, missing] =
      absent.length > 0
        ? [[...this.arrived, ...this.#expired].sort((a, b) => a - b), absent]
        : [this.arrived, this.missing];
    const verb = this.purpose.kind === "join" ? "joined" : "rejoined";
    const all = joined.length + missing.length;
    return {
      code: "timeout",
      headline: `${joined.length} of ${all} ${verb} within ${limitMs} ms, missing ${ranksText(missing)}`,
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
function fail(peer: Peer, id: number, failure: PartialFailure): void {
  peer.send({ kind: "failed", id, ranks: [], joined: [], ...failure });
}

function joinLossFailure(from: Generation, gone: readonly number[]): PartialFailure {
  const failure = lossFailure(from.members, "rebuild", gone);
  return { ...failure, hint: `give rebuild ${ranksText(gone)} in without too` };
}
