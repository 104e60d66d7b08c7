/** A rank's membership, over its session with the store. */
import { invariant } from "../../../api/invariant.ts";
import { invalid } from "../../../api/option-kinds.ts";
import { type JoinArguments, milliseconds, shortText, valueBytes } from "./checks.ts";
import { processLabel } from "./connect-session.ts";
import type { Concerned } from "./failures.ts";
import { limits } from "./limits.ts";
import {
  defaultWaitMs,
  type GetOptions,
  type LostPeer,
  type Meeting,
  type Membership,
  type RejoinOptions,
  type WaitOptions,
} from "./rendezvous.ts";
import type { Answer, Session } from "./session.ts";

const defaultSettleMs = 2_000;

/** The common part of all memberships of a process in a job. */
export interface Connection {
  readonly session: Session;
  readonly address: string;
  readonly jobId: string;
  /** The other part of leaving: the store that this process hosts. */
  readonly left: () => Promise<void>;
}

/** Asks the store to join, and waits for all ranks. */
export async function joinStore(
  connection: Connection,
  { rank, size, generation, deadlineMs, signal }: JoinArguments,
): Promise<Membership> {
  const { session, address, jobId } = connection;
  const label = processLabel;
  const timeoutMs = deadlineMs;
  const asked = { kind: "join", generation, size, timeoutMs, label } as const;
  const answer = await session.ask(asked, deadlineMs, signal, { address, jobId, rank, size });
  return new StoreMembership(connection, answer);
}

class StoreMembership implements Membership {
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly lost: LostPeer[] = [];
  readonly #connection: Connection;
  readonly #listeners = new Set<(peer: LostPeer) => void>();
  readonly #stopNews: () => void;
  /** A later membership of this process has taken the place of this one. */
  #isOver = false;

  constructor(connection: Connection, joined: Answer) {
    invariant(joined.kind === "joined", "a join is answered with a place");
    this.#connection = connection;
    this.rank = joined.rank;
    this.size = joined.initialRanks.length;
    this.generation = joined.generation;
    this.initialRanks = joined.initialRanks;
    const host = joined.hosted ? joined.initialRanks.indexOf(0) : -1;
    this.#stopNews = connection.session.onNews(({ generation, peer }) => {
      if (generation === this.generation) this.#tell(peer);
      // With the store its host is lost.
      else if (generation === "all") this.#tell({ ...peer, rank: host < 0 ? undefined : host });
    });
  }

  get jobId(): string {
    return this.#connection.jobId;
  }

  onLost(listener: (peer: LostPeer) => void): () => void {
    for (const peer of this.lost) listener(peer);
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    shortText("set", "key", key, limits.keyBytes);
    valueBytes("set", value);
    const { generation } = this;
    await this.#ask({ kind: "set", generation, key, value }, defaultWaitMs, undefined);
  }

  async get(key: string, options: GetOptions = {}): Promise<Uint8Array> {
    shortText("get", "key", key, limits.keyBytes);
    const timeoutMs = milliseconds("get", "timeoutMs", options.timeoutMs);
    const { needs } = options;
    const asked = { kind: "get", generation: this.generation, key, timeoutMs, needs } as const;
    const answer = await this.#ask(asked, timeoutMs, options.signal, options.idle);
    invariant(answer.kind === "value", "a get is answered with a value");
    return answer.value;
  }

  async exchange(key: string, value: Uint8Array, options: WaitOptions = {}): Promise<Uint8Array[]> {
    shortText("exchange", "key", key, limits.keyBytes);
    valueBytes("exchange", value);
    const timeoutMs = milliseconds("exchange", "timeoutMs", options.timeoutMs);
    const asked = { kind: "exchange", generation: this.generation, key, value, timeoutMs } as const;
    const answer = await this.#ask(asked, timeoutMs, options.signal, options.idle);
    invariant(answer.kind === "values", "an exchange is answered with values");
    return [...answer.values];
  }

  async meet(meetings: readonly Meeting[], options: WaitOptions = {}): Promise<boolean> {
    if (meetings.length > limits.meetings) {
      throw invalid("meet", "meetings", String(meetings.length), `at most ${limits.meetings}`);
    }
    for (const { key, ranks } of meetings) {
      shortText("meet", "key", key, limits.keyBytes);
      if (ranks.every((rank) => this.#isRank(rank)) && ranks.includes(this.rank)) continue;
      const needs = `ranks in 0..${this.size - 1}, this rank ${this.rank} among them`;
      throw invalid("meet", "ranks", `[${ranks.join(", ")}]`, needs);
    }
    const { generation } = this;
    const timeoutMs = milliseconds("meet", "timeoutMs", options.timeoutMs);
    if (options.signal?.aborted === true) return false;
    const asked = { kind: "meet", generation, meetings, timeoutMs } as const;
    return (await this.#ask(asked, timeoutMs, options.signal, options.idle)).kind === "done";
  }

  async rejoin(options: RejoinOptions = {}): Promise<Membership> {
    const { generation } = this;
    const without = this.#without(options.without);
    const settleMs = milliseconds("rejoin", "settleMs", options.settleMs, defaultSettleMs);
    const timeoutMs = milliseconds("rejoin", "deadlineMs", options.deadlineMs);
    const asked = { kind: "rejoin", generation, without, settleMs, timeoutMs } as const;
    const answer = await this.#ask(asked, timeoutMs, options.signal);
    this.#isOver = true;
    // The session goes on; listeners of this generation must not be kept.
    this.#stopNews();
    this.#listeners.clear();
    return new StoreMembership(this.#connection, answer);
  }

  async leave(): Promise<void> {
    if (this.#isOver) return;
    await this.#connection.session.leave();
    await this.#connection.left();
  }

  #ask(
    asked: Parameters<Session["ask"]>[0],
    timeoutMs: number,
    signal: AbortSignal | undefined,
    idle?: boolean,
  ): Promise<Answer> {
    const { address, jobId, session } = this.#connection;
    const who: Concerned = { address, jobId, rank: this.rank, size: this.size };
    return session.ask(asked, timeoutMs, signal, who, idle);
  }

  #without(ranks: readonly number[] | undefined): readonly number[] | undefined {
    if (ranks === undefined) return undefined;
    const areRanks = Array.isArray(ranks) && ranks.every((rank) => this.#isRank(rank));
    if (areRanks && !ranks.includes(this.rank)) return ranks;
    const shown = Array.isArray(ranks) ? `[${ranks.join(", ")}]` : ranks;
    const needs = `ranks in 0..${this.size - 1} other than this rank ${this.rank}`;
    throw invalid("rejoin", "without", String(shown), needs);
  }

  #isRank(rank: unknown): boolean {
    return Number.isInteger(rank) && (rank as number) >= 0 && (rank as number) < this.size;
  }

  #tell(peer: LostPeer): void {
    this.lost.push(peer);
    for (const listener of this.#listeners) listener(peer);
  }
}
