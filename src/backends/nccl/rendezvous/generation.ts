/**
 * One generation of a job inside the store: its ranks, its keys, and its waits.
 *
 * Here everything happens at once and in order; the only thing that passes time is a deadline.
 */
import { ranksText } from "../../../api/error-text.ts";
import { type Attendance, Meetings } from "./barrier.ts";
import { limits, longestMs } from "./limits.ts";
import type { Failure, Reply, Request } from "./protocol.ts";
import type { Meeting } from "./rendezvous.ts";

/** A wait and how it ends. */
interface Wait {
  readonly rank: number;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** One for a key. */
interface Get extends Wait {
  readonly needs: readonly number[] | undefined;
}

interface Round {
  readonly values: Map<number, Uint8Array>;
  readonly waits: Map<number, Wait>;
  bytes: number;
}

/** One generation. Ranks in it are its own numbers. */
export class Generation {
  readonly number: number;
  readonly seats: readonly Seat[];
  readonly #values = new Map<string, Uint8Array>();
  readonly #gets = new Map<string, Set<Get>>();
  readonly #rounds = new Map<string, Round[]>();
  readonly #meetings = new Meetings();
  #bytes = 0;
  #over: Failure | undefined;

  constructor(number: number, seats: readonly Seat[]) {
    this.number = number;
    this.seats = seats;
  }

  /** Why nothing happens here any more. */
  get over(): Failure | undefined {
    return this.#over;
  }

  /** Ranks that are neither lost nor left. */
  get here(): number[] {
    return ranksWhere(this.seats, (seat) => seat.state === "here");
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
    const gone = this.#goneForGet(key, { rank, needs });
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
    const gone = this.#goneForRound(key, round);
    if (gone !== undefined) {
      this.#fail(rank, id, gone);
      return;
    }
    if (round === undefined) {
      round = { values: new Map(), waits: new Map(), bytes: 0 };
      rounds.push(round);
      this.#rounds.set(key, rounds);
    }
    const mine = round;
    const timer = after(timeoutMs, () => {
      const missing = ranksWhere(this.seats, (_, each) => !mine.values.has(each));
      const there = this.seats.length - missing.length;
      this.#withdraw(key, mine, rank);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `exchange "${key}": ${there} of ${this.seats.length} ranks gave a value within ${timeoutMs} ms, missing ${ranksText(missing)}`,
        hint: "see whether all ranks reach this point; one may be slow or stuck",
        ranks: missing,
      });
    });
    mine.values.set(rank, value);
    mine.waits.set(rank, { rank, id, timer });
    mine.bytes += value.byteLength;
    this.#bytes += held;
    if (mine.values.size === this.seats.length) this.#complete(key, mine);
  }

  meet(rank: number, id: number, meetings: readonly Meeting[], timeoutMs: number): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    if (this.#meetings.heldBy(rank) + meetings.length > limits.meetings) {
      const headline = `meet: a rank waits for at most ${limits.meetings} meetings at once`;
      this.#fail(rank, id, { code: "limit", headline, hint: "await those that are open first" });
      return;
    }
    const gone = this.#goneForMeetings({ meetings });
    if (gone !== undefined) {
      this.#fail(rank, id, gone);
      return;
    }
    const timer = after(timeoutMs, () => {
      const missing = this.#meetings.missing(mine);
      this.#meetings.go(mine);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `meet: ${ranksText(missing)} did not come within ${timeoutMs} ms`,
        hint: "see whether all ranks reach this point; one may be slow or stuck",
        ranks: missing,
      });
    });
    const mine: Attendance = { rank, id, meetings, timer };
    for (const each of this.#meetings.come(mine)) {
      this.#reply(each.rank, { kind: "done", id: each.id });
    }
  }

  /** Gives up a wait of that rank; one that has ended is none. */
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
    const isIt = (each: Attendance): boolean => each.rank === rank && each.id === id;
    for (const each of this.#meetings.waiting(isIt)) {
      this.#meetings.go(each);
      this.#reply(rank, { kind: "withdrawn", id });
    }
  }

  /** A rank is gone: waits that need it fail, and the others hear of a loss. */
  gone(rank: number, state: "lost" | "left", reason: string): void {
    const seat = this.seats[rank];
    if (seat === undefined || seat.state !== "here") return;
    seat.state = state;
    seat.reason = reason;
    this.#dropWaitsOf(rank);
    if (state === "lost" && this.#over === undefined) {
      const news = {
        kind: "lost",
        generation: this.number,
        rank,
        atMs: Date.now(),
        reason,
      } as const;
      for (const other of this.here) this.#reply(other, news);
    }
    for (const [key, waits] of this.#gets) {
      for (const wait of waits) {
        const failure = this.#goneForGet(key, wait);
        if (failure === undefined) continue;
        this.#dropGet(key, wait);
        this.#fail(wait.rank, wait.id, failure);
      }
    }
    for (const [key, rounds] of this.#rounds) {
      for (const round of [...rounds]) {
        const failure = this.#goneForRound(key, round);
        if (failure !== undefined) this.#failRound(key, round, failure);
      }
    }
    for (const each of this.#meetings.waiting(() => true)) {
      const failure = this.#goneForMeetings(each);
      if (failure !== undefined) this.#failMeetings(each, failure);
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
    for (const each of this.#meetings.waiting(() => true)) this.#failMeetings(each, failure);
    this.#values.clear();
  }

  #complete(key: string, round: Round): void {
    const values = this.seats.map((_, rank) => round.values.get(rank) as Uint8Array);
    this.#removeRound(key, round);
    for (const { rank, id, timer } of round.waits.values()) {
      clearTimeout(timer);
      this.#reply(rank, { kind: "values", id, values });
    }
  }

  #failRound(key: string, round: Round, failure: Told): void {
    this.#removeRound(key, round);
    for (const { rank, id, timer } of round.waits.values()) {
      clearTimeout(timer);
      this.#fail(rank, id, failure);
    }
  }

  #failMeetings(attendance: Attendance, failure: Told): void {
    this.#meetings.go(attendance);
    this.#fail(attendance.rank, attendance.id, failure);
  }

  #removeRound(key: string, round: Round): void {
    const left = (this.#rounds.get(key) ?? []).filter((each) => each !== round);
    if (left.length === 0) this.#rounds.delete(key);
    else this.#rounds.set(key, left);
    for (const value of round.values.values()) this.#bytes -= heldBytes(key, value);
  }

  #withdraw(key: string, round: Round, rank: number): void {
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

  /** A lost rank waits for nothing; what it gave to an exchange still counts. */
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
    const isHis = (each: Attendance): boolean => each.rank === rank;
    for (const each of this.#meetings.waiting(isHis)) this.#meetings.go(each);
  }

  #goneForMeetings(attendance: Pick<Attendance, "meetings">): Told | undefined {
    const missing = this.#meetings.missing(attendance);
    const gone = missing.filter((rank) => this.seats[rank]?.state !== "here");
    return gone.length === 0 ? undefined : goneWords(this.seats, "meet", gone);
  }

  #goneForGet(key: string, { rank, needs }: Pick<Get, "rank" | "needs">): Told | undefined {
    const here = this.here.filter((each) => each !== rank);
    const isGone = ({ state }: Seat, each: number): boolean => {
      if (needs !== undefined) return state !== "here" && needs.includes(each);
      return state === "lost" || (state === "left" && here.length === 0);
    };
    const gone = ranksWhere(this.seats, isGone);
    return gone.length === 0 ? undefined : goneWords(this.seats, `get "${key}"`, gone);
  }

  #goneForRound(key: string, round: Round | undefined): Told | undefined {
    const isMissing = (rank: number): boolean => round?.values.has(rank) !== true;
    const gone = ranksWhere(this.seats, (seat, rank) => seat.state !== "here" && isMissing(rank));
    return gone.length === 0 ? undefined : goneWords(this.seats, `exchange "${key}"`, gone);
  }

  #fail(rank: number, id: number, failure: Told): void {
    this.#reply(rank, { kind: "failed", id, ranks: [], joined: [], ...failure });
  }

  #reply(rank: number, reply: Reply): void {
    this.seats[rank]?.peer.send(reply);
  }
}

/** A deadline that keeps no process alive. A rank may send one beyond what a timer holds: it is the longest then. */
export function after(timeoutMs: number, then: () => void): NodeJS.Timeout {
  return setTimeout(then, Math.min(timeoutMs, longestMs)).unref();
}

/** The memory of a value: also an empty one takes some. */
function heldBytes(key: string, value: Uint8Array): number {
  return limits.entryBytes + Buffer.byteLength(key) + value.byteLength;
}

function tooMuch(what: string, bytes: number): Words {
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
export interface Seat {
  readonly peer: Peer;
  /** Its rank in the generation that was joined. */
  readonly initialRank: number;
  state: "here" | "lost" | "left";
  reason: string;
}

/** The required parts of a failure; the rest has defaults. */
export type Words = Pick<Failure, "code" | "headline" | "hint">;

/** A failure as it is sent: its required parts, and more where there are more. */
export type Told = Partial<Failure> & Words;

/** Ranks in a state. */
function ranksWhere(
  seats: readonly Seat[],
  which: (seat: Seat, rank: number) => boolean,
): number[] {
  return seats.flatMap((seat, rank) => (which(seat, rank) ? [rank] : []));
}

/** The error of a wait for ranks that are gone. */
function goneWords(seats: readonly Seat[], what: string, gone: readonly number[]): Told {
  const seat = seats[gone[0] ?? 0];
  const how = seat?.state === "left" ? "has left" : `was lost: ${seat?.reason}`;
  return {
    code: "gone",
    headline: `${what}: rank ${gone[0]} ${how}`,
    hint: "comm.rebuild() goes on with those that are left",
    ranks: gone,
  };
}
