/**
 * One generation of a job inside the store: its ranks, its keys, and its waits.
 *
 * Requests are processed synchronously and in order; only deadlines use timers.
 */
import { ranksText } from "../api/error-text.ts";
import { longestTimerMs } from "./async.ts";
import { Barriers, type BarrierWait } from "./barrier.ts";
import { limits } from "./limits.ts";
import type { Failure, Reply, Request } from "./protocol.ts";
import type { Barrier } from "./rendezvous.ts";

/** An open wait of a rank, with its deadline. */
interface Wait {
  readonly rank: number;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** A wait for a key. */
interface Get extends Wait {
  readonly needs: readonly number[] | undefined;
}

interface ExchangeRound {
  readonly values: Map<number, Uint8Array>;
  readonly waits: Map<number, Wait>;
  bytes: number;
}

/** One generation. Ranks are numbered within it. */
export class Generation {
  readonly number: number;
  readonly members: readonly Member[];
  readonly #values = new Map<string, Uint8Array>();
  readonly #gets = new Map<string, Set<Get>>();
  readonly #rounds = new Map<string, ExchangeRound[]>();
  readonly #barriers = new Barriers();
  #bytes = 0;
  #over: Failure | undefined;

  constructor(number: number, members: readonly Member[]) {
    this.number = number;
    this.members = members;
  }

  /** The reason of its end; `undefined` before. */
  get over(): Failure | undefined {
    return this.#over;
  }

  /** Ranks that are neither lost nor left. */
  get presentRanks(): number[] {
    return ranksWhere(this.members, (member) => member.state === "here");
  }

  set(rank: number, id: number, key: string, value: Uint8Array): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    if (this.#values.has(key)) {
      this.#fail(rank, id, {
        code: "taken",
        headline: `set: the key "${key}" is set already, and the first value stays`,
        hint: "a key is set once in a generation; exchange() may repeat its key",
      });
      return;
    }
    const bytes = heldBytes(key, value);
    if (this.#bytes + bytes > limits.storeBytes) {
      this.#fail(rank, id, tooMuch("set", limits.storeBytes));
      return;
    }
    this.#bytes += bytes;
    this.#values.set(key, value);
    const waits = this.#gets.get(key) ?? [];
    this.#gets.delete(key);
    for (const wait of waits) {
      clearTimeout(wait.timer);
      this.#reply(wait.rank, { kind: "value", id: wait.id, value });
    }
    this.#reply(rank, { kind: "done", id });
  }

  get(rank: number, { id, key, timeoutMs, needs }: Extract<Request, { kind: "get" }>): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    const value = this.#values.get(key);
    if (value !== undefined) {
      this.#reply(rank, { kind: "value", id, value });
      return;
    }
    const gone = this.#lossFailingGet(key, { rank, needs });
    if (gone !== undefined) {
      this.#fail(rank, id, gone);
      return;
    }
    const waits = this.#gets.get(key) ?? new Set<Get>();
    this.#gets.set(key, waits);
    const timer = after(timeoutMs, () => {
      this.#dropGet(key, wait);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `get: no rank has set the key "${key}" within ${timeoutMs} ms`,
        hint: "a rank may be slow to start; see whether all of them reach this point",
      });
    });
    const wait: Get = { rank, id, timer, needs };
    waits.add(wait);
  }

  exchange(rank: number, id: number, key: string, value: Uint8Array, timeoutMs: number): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    const rounds = this.#rounds.get(key) ?? [];
    let round = rounds.find((each) => !each.values.has(rank));
    const bytes = (round?.bytes ?? 0) + value.byteLength;
    const held = heldBytes(key, value);
    if (bytes > limits.exchangeBytes || this.#bytes + held > limits.storeBytes) {
      this.#fail(rank, id, tooMuch("exchange", limits.exchangeBytes));
      return;
    }
    const gone = this.#lossFailingRound(key, round);
    if (gone !== undefined) {
      this.#fail(rank, id, gone);
      return;
    }
    if (round === undefined) {
      round = { values: new Map(), waits: new Map(), bytes: 0 };
      rounds.push(round);
      this.#rounds.set(key, rounds);
    }
    const ownRound = round;
    const timer = after(timeoutMs, () => {
      const missing = ranksWhere(this.members, (_, each) => !ownRound.values.has(each));
      const there = this.members.length - missing.length;
      this.#withdraw(key, ownRound, rank);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `exchange "${key}": ${there} of ${this.members.length} ranks gave a value within ${timeoutMs} ms, missing ${ranksText(missing)}`,
        hint: "see whether all ranks reach this point; one may be slow or stuck",
        ranks: missing,
      });
    });
    ownRound.values.set(rank, value);
    ownRound.waits.set(rank, { rank, id, timer });
    ownRound.bytes += value.byteLength;
    this.#bytes += held;
    if (ownRound.values.size === this.members.length) this.#complete(key, ownRound);
  }

  awaitBarriers(rank: number, id: number, barriers: readonly Barrier[], timeoutMs: number): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    if (this.#barriers.countOf(rank) + barriers.length > limits.barriers) {
      const headline = `barrier: a rank waits for at most ${limits.barriers} barriers at once`;
      this.#fail(rank, id, { code: "limit", headline, hint: "await those that are open first" });
      return;
    }
    const gone = this.#lossFailingBarriers({ barriers });
    if (gone !== undefined) {
      this.#fail(rank, id, gone);
      return;
    }
    const timer = after(timeoutMs, () => {
      const missing = this.#barriers.missing(mine);
      this.#barriers.leave(mine);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `barrier: ${ranksText(missing)} did not arrive within ${timeoutMs} ms`,
        hint: "see whether all ranks reach this point; one may be slow or stuck",
        ranks: missing,
      });
    });
    const mine: BarrierWait = { rank, id, barriers, timer };
    for (const each of this.#barriers.arrive(mine)) {
      this.#reply(each.rank, { kind: "done", id: each.id });
    }
  }

  /** Cancels a wait of that rank, unless it has ended. */
  cancel(rank: number, id: number): void {
    const isMine = (wait: Wait): boolean => wait.rank === rank && wait.id === id;
    for (const [key, waits] of this.#gets) {
      for (const wait of waits) if (isMine(wait)) this.#dropGet(key, wait);
    }
    for (const [key, rounds] of this.#rounds) {
      for (const round of rounds) {
        const wait = round.waits.get(rank);
        if (wait !== undefined && isMine(wait)) this.#withdraw(key, round, rank);
      }
    }
    const isCancelled = (each: BarrierWait): boolean => each.rank === rank && each.id === id;
    for (const each of this.#barriers.waiting(isCancelled)) {
      this.#barriers.leave(each);
      this.#reply(rank, { kind: "withdrawn", id });
    }
  }

  /** A rank is gone: waits that need it fail, and the others get a notice of a loss. */
  gone(rank: number, state: "lost" | "left", reason: string): void {
    const member = this.members[rank];
    if (member === undefined || member.state !== "here") return;
    member.state = state;
    member.reason = reason;
    this.#dropWaitsOf(rank);
    if (state === "lost" && this.#over === undefined) {
      const news = {
        kind: "lost",
        generation: this.number,
        rank,
        atMs: Date.now(),
        reason,
      } as const;
      for (const other of this.presentRanks) this.#reply(other, news);
    }
    for (const [key, waits] of this.#gets) {
      for (const wait of waits) {
        const failure = this.#lossFailingGet(key, wait);
        if (failure === undefined) continue;
        this.#dropGet(key, wait);
        this.#fail(wait.rank, wait.id, failure);
      }
    }
    for (const [key, rounds] of this.#rounds) {
      for (const round of [...rounds]) {
        const failure = this.#lossFailingRound(key, round);
        if (failure !== undefined) this.#failRound(key, round, failure);
      }
    }
    for (const each of this.#barriers.waiting(() => true)) {
      const failure = this.#lossFailingBarriers(each);
      if (failure !== undefined) this.#failBarriers(each, failure);
    }
  }

  /** Nothing happens here any more: every wait, and every later request, fails with this. */
  end(failure: Failure): void {
    this.#over = failure;
    for (const [key, waits] of this.#gets) {
      for (const wait of waits) {
        this.#dropGet(key, wait);
        this.#fail(wait.rank, wait.id, failure);
      }
    }
    for (const [key, rounds] of this.#rounds) {
      for (const round of [...rounds]) this.#failRound(key, round, failure);
    }
    for (const each of this.#barriers.waiting(() => true)) this.#failBarriers(each, failure);
    this.#values.clear();
  }

  #complete(key: string, round: ExchangeRound): void {
    const values = this.members.map((_, rank) => round.values.get(rank) as Uint8Array);
    this.#removeRound(key, round);
    for (const { rank, id, timer } of round.waits.values()) {
      clearTimeout(timer);
      this.#reply(rank, { kind: "values", id, values });
    }
  }

  #failRound(key: string, round: ExchangeRound, failure: PartialFailure): void {
    this.#removeRound(key, round);
    for (const { rank, id, timer } of round.waits.values()) {
      clearTimeout(timer);
      this.#fail(rank, id, failure);
    }
  }

  #failBarriers(wait: BarrierWait, failure: PartialFailure): void {
    this.#barriers.leave(wait);
    this.#fail(wait.rank, wait.id, failure);
  }

  #removeRound(key: string, round: ExchangeRound): void {
    const left = (this.#rounds.get(key) ?? []).filter((each) => each !== round);
    if (left.length === 0) this.#rounds.delete(key);
    else this.#rounds.set(key, left);
    for (const value of round.values.values()) this.#bytes -= heldBytes(key, value);
  }

  #withdraw(key: string, round: ExchangeRound, rank: number): void {
    const value = round.values.get(rank) as Uint8Array;
    clearTimeout(round.waits.get(rank)?.timer);
    round.values.delete(rank);
    round.waits.delete(rank);
    round.bytes -= value.byteLength;
    this.#bytes -= heldBytes(key, value);
    if (round.values.size === 0) this.#removeRound(key, round);
  }

  #dropGet(key: string, wait: Get): void {
    clearTimeout(wait.timer);
    const waits = this.#gets.get(key);
    waits?.delete(wait);
    if (waits?.size === 0) this.#gets.delete(key);
  }

  /** A lost rank has no waits; its value in an exchange still counts. */
  #dropWaitsOf(rank: number): void {
    for (const [key, waits] of this.#gets) {
      for (const wait of waits) if (wait.rank === rank) this.#dropGet(key, wait);
    }
    for (const rounds of this.#rounds.values()) {
      for (const round of rounds) {
        clearTimeout(round.waits.get(rank)?.timer);
        round.waits.delete(rank);
      }
    }
    const isOfRank = (each: BarrierWait): boolean => each.rank === rank;
    for (const each of this.#barriers.waiting(isOfRank)) this.#barriers.leave(each);
  }

  #lossFailingBarriers(wait: Pick<BarrierWait, "barriers">): PartialFailure | undefined {
    const missing = this.#barriers.missing(wait);
    const gone = missing.filter((rank) => this.members[rank]?.state !== "here");
    return gone.length === 0 ? undefined : lossFailure(this.members, "barrier", gone);
  }

  #lossFailingGet(
    key: string,
    { rank, needs }: Pick<Get, "rank" | "needs">,
  ): PartialFailure | undefined {
    const presentRanks = this.presentRanks.filter((each) => each !== rank);
    const isGone = ({ state }: Member, each: number): boolean => {
      if (needs !== undefined) return state !== "here" && needs.includes(each);
      return state === "lost" || (state === "left" && presentRanks.length === 0);
    };
    const gone = ranksWhere(this.members, isGone);
    return gone.length === 0 ? undefined : lossFailure(this.members, `get "${key}"`, gone);
  }

  #lossFailingRound(key: string, round: ExchangeRound | undefined): PartialFailure | undefined {
    const isMissing = (rank: number): boolean => round?.values.has(rank) !== true;
    const gone = ranksWhere(
      this.members,
      (member, rank) => member.state !== "here" && isMissing(rank),
    );
    return gone.length === 0 ? undefined : lossFailure(this.members, `exchange "${key}"`, gone);
  }

  #fail(rank: number, id: number, failure: PartialFailure): void {
    this.#reply(rank, { kind: "failed", id, ranks: [], joined: [], ...failure });
  }

  #reply(rank: number, reply: Reply): void {
    this.members[rank]?.peer.send(reply);
  }
}

/**
 * A deadline that keeps no process alive. A rank may send a longer time than timers allow, which is then the longest possible.
 */
export function after(timeoutMs: number, then: () => void): NodeJS.Timeout {
  return setTimeout(then, Math.min(timeoutMs, longestTimerMs)).unref();
}

/** The memory of a value: also an empty one takes some. */
function heldBytes(key: string, value: Uint8Array): number {
  return limits.entryBytes + Buffer.byteLength(key) + value.byteLength;
}

function tooMuch(what: string, bytes: number): FailureText {
  return {
    code: "limit",
    headline: `${what}: the store holds at most ${bytes} bytes here`,
    hint: "the store is for small values; data goes through collectives",
  };
}

/** A rank as the store sees it: a receiver of replies. */
export interface Peer {
  /** Host and process, for messages. */
  readonly label: string;
  send(reply: Reply): void;
}

/** A rank's place in a generation. */
export interface Member {
  readonly peer: Peer;
  /** Its rank in the generation that was joined. */
  readonly initialRank: number;
  state: "here" | "lost" | "left";
  reason: string;
}

/** The required parts of a failure; the rest has defaults. */
export type FailureText = Pick<Failure, "code" | "headline" | "hint">;

/** A failure as it is sent: its required parts, and more where there are more. */
export type PartialFailure = Partial<Failure> & FailureText;

/** Ranks in a state. */
function ranksWhere(
  members: readonly Member[],
  which: (member: Member, rank: number) => boolean,
): number[] {
  return members.flatMap((member, rank) => (which(member, rank) ? [rank] : []));
}

/** The error of a wait for ranks that are gone. */
function lossFailure(
  members: readonly Member[],
  what: string,
  gone: readonly number[],
): PartialFailure {
  const member = members[gone[0] ?? 0];
  const how = member?.state === "left" ? "has left" : `was lost: ${member?.reason}`;
  return {
    code: "gone",
    headline: `${what}: rank ${gone[0]} ${how}`,
    hint: "comm.rebuild() continues with those that are left",
    ranks: gone,
  };
}
