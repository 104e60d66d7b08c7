/** The membership of a rank in a generation, over its session with the store. */
import { hostname } from "node:os";
import { invariant } from "../api/invariant.ts";
import { invalid } from "../api/option-kinds.ts";
import { emitWarning } from "../api/warnings.ts";
import { type JoinArguments, milliseconds, shortText, valueBytes } from "./checks.ts";
import type { Answer, Push, RendezvousSession, RequestArgs } from "./client.ts";
import { type ErrorContext, limits } from "./protocol.ts";
import {
  type Barrier,
  defaultWaitMs,
  type ExchangeOptions,
  type LostPeer,
  type Membership,
  type RejoinOptions,
  type WaitOptions,
} from "./rendezvous.ts";

/** Calls listeners with news. A throw of one is no fault of the store, and keeps none of the others from them. */
function callAll<A extends readonly unknown[]>(
  listeners: Iterable<(...news: A) => void>,
  ...news: A
): void {
  for (const listener of [...listeners]) {
    try {
      listener(...news);
    } catch (error) {
      emitWarning(`a listener of the job has thrown: ${error}`, "TwincclUnseenFailure");
    }
  }
}

/** The name of this process in messages. */
const processLabel = `process ${process.pid} on ${hostname()}`;

const defaultSettleMs = 2_000;

/** True for a text that fits into a message. */
function isAnswer(text: string | undefined): text is string {
  return text !== undefined && Buffer.byteLength(text) <= limits.valueBytes;
}

/** The common part of all memberships of a process in a job. */
export interface StoreConnection {
  readonly session: RendezvousSession;
  readonly address: string;
  readonly jobId: string;
  /** The other part of leaving: the store that this process hosts. */
  readonly left: () => Promise<void>;
}

/** Joins, and waits for all ranks. */
export async function joinStore(
  connection: StoreConnection,
  { rank, size, generation, deadlineMs, limitMs, signal }: JoinArguments,
): Promise<Membership> {
  const { session, address, jobId } = connection;
  const label = processLabel;
  const timeoutMs = deadlineMs;
  const bounds = { timeoutMs, limitMs };
  const args = { kind: "join", jobId, rank, generation, size, ...bounds, label } as const;
  const answer = await session.request(args, deadlineMs, signal, { address, jobId, rank, size });
  return new StoreMembership(connection, answer);
}

class StoreMembership implements Membership {
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  readonly initialRanks: readonly number[];
  readonly lost: LostPeer[] = [];
  readonly #connection: StoreConnection;
  readonly #listeners = new Set<(peer: LostPeer) => void>();
  readonly #stopListening: () => void;
  readonly #newsListeners = new Set<(news: string, rank: number) => void>();
  /** News before the first listener, and questions before there is an answer. */
  #earlyNews: Extract<Push, { kind: "news" }>[] = [];
  #earlyQuestions: Extract<Push, { kind: "asked" }>[] = [];
  #answer: ((question: string) => string | Promise<string>) | undefined;
  #nextRanks: readonly number[] | undefined;
  readonly #nextListeners = new Set<(ranks: readonly number[]) => void>();
  /** A later membership of this process has taken the place of this one. */
  #isOver = false;

  constructor(connection: StoreConnection, joined: Answer) {
    invariant(joined.kind === "joined", "a join is answered with a place");
    this.#connection = connection;
    this.rank = joined.rank;
    this.size = joined.initialRanks.length;
    this.generation = joined.generation;
    this.initialRanks = joined.initialRanks;
    const host = joined.hosted ? joined.initialRanks.indexOf(0) : -1;
    this.#stopListening = connection.session.onPush(this.generation, {
      pushed: (push) => this.#pushed(push),
      // With the store its host is lost.
      storeLost: (peer) => this.#notify({ ...peer, rank: host < 0 ? undefined : host }),
    });
  }

  get jobId(): string {
    return this.#connection.jobId;
  }

  onLost(listener: (peer: LostPeer) => void): void {
    for (const peer of this.lost) listener(peer);
    this.#listeners.add(listener);
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    shortText("set", "key", key, limits.keyBytes);
    valueBytes("set", value);
    const { generation } = this;
    await this.#request({ kind: "set", generation, key, value }, defaultWaitMs, undefined);
  }

  async get(key: string, options: WaitOptions = {}): Promise<Uint8Array> {
    shortText("get", "key", key, limits.keyBytes);
    const timeoutMs = milliseconds("get", "timeoutMs", options.timeoutMs);
    const args = { kind: "get", generation: this.generation, key, timeoutMs } as const;
    const answer = await this.#request(args, timeoutMs, options.signal, options.idle);
    invariant(answer.kind === "value", "a get is answered with a value");
    return answer.value;
  }

  async exchange(
    key: string,
    value: Uint8Array,
    options: ExchangeOptions = {},
  ): Promise<Uint8Array[]> {
    shortText("exchange", "key", key, limits.keyBytes);
    valueBytes("exchange", value);
    const timeoutMs = milliseconds("exchange", "timeoutMs", options.timeoutMs);
    // No ranks stand for all of them.
    const { ranks = [] } = options;
    if (ranks.length > 0) this.#assertOwnAmong("exchange", ranks);
    const { generation } = this;
    const args = {
      kind: "barrier",
      generation,
      barriers: [{ key, ranks }],
      value,
      timeoutMs,
    } as const;
    const answer = await this.#request(args, timeoutMs, options.signal, options.idle);
    invariant(answer.kind === "values", "an exchange is answered with values");
    return [...answer.values];
  }

  async awaitBarriers(barriers: readonly Barrier[], options: WaitOptions = {}): Promise<boolean> {
    if (barriers.length > limits.barriers) {
      throw invalid("barrier", "barriers", String(barriers.length), `at most ${limits.barriers}`);
    }
    for (const { key, ranks } of barriers) {
      shortText("barrier", "key", key, limits.keyBytes);
      this.#assertOwnAmong("barrier", ranks);
    }
    const { generation } = this;
    const timeoutMs = milliseconds("barrier", "timeoutMs", options.timeoutMs);
    if (options.signal?.aborted === true) return false;
    const args = { kind: "barrier", generation, barriers, value: undefined, timeoutMs } as const;
    return (await this.#request(args, timeoutMs, options.signal, options.idle)).kind === "done";
  }

  announce(ranks: readonly number[], news: string): void {
    shortText("announce", "news", news, limits.valueBytes);
    const { generation } = this;
    if (!this.#isOver) this.#connection.session.post({ kind: "announce", generation, ranks, news });
  }

  onNews(listener: (news: string, rank: number) => void): void {
    this.#newsListeners.add(listener);
    const early = this.#earlyNews;
    this.#earlyNews = [];
    for (const { news, rank } of early) listener(news, rank);
  }

  async ask(rank: number, question: string, options: WaitOptions = {}): Promise<string> {
    if (!this.#isRank(rank)) throw invalid("ask", "rank", String(rank), `0..${this.size - 1}`);
    shortText("ask", "question", question, limits.keyBytes);
    const timeoutMs = milliseconds("ask", "timeoutMs", options.timeoutMs);
    const { generation } = this;
    const args = { kind: "ask", generation, rank, question, timeoutMs } as const;
    const answer = await this.#request(args, timeoutMs, options.signal, options.idle);
    invariant(answer.kind === "answered", "a question is answered with a text");
    return answer.text;
  }

  onQuestion(answer: (question: string) => string | Promise<string>): void {
    this.#answer = answer;
    const early = this.#earlyQuestions;
    this.#earlyQuestions = [];
    for (const asked of early) void this.#answerTo(asked);
  }

  onNextGeneration(listener: (ranks: readonly number[]) => void): void {
    if (this.#nextRanks !== undefined) listener(this.#nextRanks);
    else this.#nextListeners.add(listener);
  }

  async rejoin(options: RejoinOptions = {}): Promise<Membership> {
    const { generation } = this;
    const without = this.#without(options.without);
    const settleMs = milliseconds("rejoin", "settleMs", options.settleMs, defaultSettleMs);
    const timeoutMs = milliseconds("rejoin", "deadlineMs", options.deadlineMs);
    const args = { kind: "rejoin", generation, without, settleMs, timeoutMs } as const;
    const answer = await this.#request(args, timeoutMs, options.signal);
    this.#isOver = true;
    // The session goes on; listeners of this generation must not be kept.
    this.#stopListening();
    this.#listeners.clear();
    this.#newsListeners.clear();
    this.#nextListeners.clear();
    this.#answer = undefined;
    this.#earlyQuestions = [];
    return new StoreMembership(this.#connection, answer);
  }

  async leave(status?: string): Promise<void> {
    if (this.#isOver) return;
    await this.#connection.session.leave(isAnswer(status) ? status : undefined);
    await this.#connection.left();
  }

  #pushed(push: Push): void {
    switch (push.kind) {
      case "lost": {
        const { rank, atMs, reason } = push;
        this.#notify({ rank, atMs, reason });
        return;
      }
      case "news":
        if (this.#newsListeners.size === 0) this.#earlyNews.push(push);
        callAll(this.#newsListeners, push.news, push.rank);
        return;
      case "asked":
        void this.#answerTo(push);
        return;
      case "began":
        this.#nextRanks = push.ranks;
        callAll(this.#nextListeners, push.ranks);
        return;
    }
  }

  async #answerTo(asked: Extract<Push, { kind: "asked" }>): Promise<void> {
    if (this.#answer === undefined) {
      this.#earlyQuestions.push(asked);
      return;
    }
    const { id, question } = asked;
    try {
      const text = await this.#answer(question);
      const { generation } = this;
      if (!isAnswer(text) || this.#isOver) return;
      this.#connection.session.post({ kind: "answer", id, generation, text });
    } catch {
      // The question stays without this answer.
    }
  }

  #request(
    args: RequestArgs,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    idle?: boolean,
  ): Promise<Answer> {
    const { address, jobId, session } = this.#connection;
    const context: ErrorContext = { address, jobId, rank: this.rank, size: this.size };
    return session.request(args, timeoutMs, signal, context, idle);
  }

  /** Refuses ranks that do not exist, and a list without this rank. */
  #assertOwnAmong(call: "barrier" | "exchange", ranks: readonly number[]): void {
    if (ranks.every((rank) => this.#isRank(rank)) && ranks.includes(this.rank)) return;
    const needs = `ranks in 0..${this.size - 1}, this rank ${this.rank} among them`;
    throw invalid(call, "ranks", `[${ranks.join(", ")}]`, needs);
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

  #notify(peer: LostPeer): void {
    this.lost.push(peer);
    callAll(this.#listeners, peer);
  }
}
