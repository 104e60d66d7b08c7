/** The client of a rank: its authenticated session with the store, and its memberships. */

import { hostname } from "node:os";
import { CommClosedError } from "../api/errors.ts";
import { invariant } from "../api/invariant.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { invalid } from "../api/option-kinds.ts";
import { emitWarning } from "../api/warnings.ts";
import { type JoinArguments, milliseconds, shortText, valueBytes } from "./checks.ts";
import type { FramedSocket } from "./connection.ts";
import { decode, encode, FrameError } from "./frames.ts";
import {
  type ErrorContext,
  type Failure,
  failureError,
  limits,
  type Reply,
  type Request,
  replies,
  requests,
  signalError,
  storeError,
} from "./protocol.ts";
import {
  type Barrier,
  defaultWaitMs,
  type ExchangeOptions,
  type GetOptions,
  type LostPeer,
  type Membership,
  type RejoinOptions,
  type WaitOptions,
} from "./rendezvous.ts";

/** A request without the number that the session gives it. */
type RequestArgs = {
  [K in Request["kind"]]: Omit<Extract<Request, { kind: K }>, "id">;
}[Exclude<Request["kind"], "announce" | "answer" | "cancel" | "hello" | "leave" | "liveness">];

/** The name of a request in errors. */
function nameOf(args: RequestArgs): string {
  return args.kind === "barrier" && args.value !== undefined ? "exchange" : args.kind;
}

/** The answer of a request that worked. */
type Answer = Exclude<Reply, { kind: "welcome" | "failed" | "closing" | "bye" } | Push>;

/** True for an answer that a request may have, in a generation of `size` ranks. */
function isAnswerTo(args: RequestArgs, answer: Answer, size: number): boolean {
  switch (args.kind) {
    case "join":
    case "rejoin":
      return answer.kind === "joined" && answer.rank < answer.initialRanks.length;
    case "set":
      return answer.kind === "done";
    case "get":
      return answer.kind === "value";
    case "ask":
      return answer.kind === "answered";
    case "barrier": {
      if (args.value === undefined) return answer.kind === "done" || answer.kind === "withdrawn";
      const count = args.barriers[0]?.ranks.length || size;
      return answer.kind === "values" && answer.values.length === count;
    }
  }
}

/** News from the store without a request, in one generation. */
type Push = Extract<Reply, { kind: "lost" | "news" | "asked" | "began" }>;

/** A receiver of pushed news. */
interface PushListener {
  /** News of the listener's generation. */
  pushed(push: Push): void;
  /** The store is lost. */
  storeLost(peer: LostPeer): void;
}

interface PendingRequest {
  /** @throws FrameError for an answer of another request. */
  answered(answer: Answer): void;
  failed(failure: Failure): void;
  /** The session is over. */
  over(): void;
}

/** Longest wait for the store's answer past a deadline, which the store keeps. */
const graceMs = 2_000;
/** Longest wait for the answer to a cancelled barrier. */
const withdrawTimeoutMs = 1_000;
/** Longest wait for the answer to `leave`. */
const leaveTimeoutMs = 1_000;

/** A session. It keeps the process alive only while a request waits that is not idle. */
export class RendezvousSession {
  readonly #framed: FramedSocket;
  readonly #pending = new Map<number, PendingRequest>();
  /** Number of them that keep the process alive. */
  #activeCount = 0;
  readonly #listeners = new Map<number, PushListener>();
  /** News of a generation that has no listener yet. */
  #early: Push[] = [];
  #storeLoss: LostPeer | undefined;
  #nextId = 1;
  #endReason: "left" | { readonly reason: string } | undefined;
  #leaving: Promise<void> | undefined;
  #onLeft: (() => void) | undefined;

  constructor(framed: FramedSocket) {
    this.#framed = framed;
    framed.listener = {
      frame: (frame) => this.#frame(frame),
      ended: (reason) => this.#lost(reason),
    };
  }

  /** The store has closed, or the connection to it has ended. */
  get hasEnded(): boolean {
    return this.#endReason !== undefined && this.#endReason !== "left";
  }

  /** Calls a listener with all news of a generation; gives a way to stop that. */
  onPush(generation: number, listener: PushListener): () => void {
    this.#listeners.set(generation, listener);
    const early = this.#early;
    this.#early = early.filter((push) => push.generation > generation);
    for (const push of early) if (push.generation === generation) listener.pushed(push);
    if (this.#storeLoss !== undefined) listener.storeLost(this.#storeLoss);
    return () => this.#listeners.delete(generation);
  }

  /** Sends a message without an answer, unless the session is over. */
  post(message: Extract<Request, { kind: "announce" | "answer" }>): void {
    if (this.#endReason === undefined) this.#send(message);
  }

  /** Sends a request and gives its answer, or the error that it failed with. */
  request(
    args: RequestArgs,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    context: ErrorContext,
    idle = false,
  ): Promise<Answer> {
    const kind = nameOf(args);
    const holds = idle ? 0 : 1;
    if (signal?.aborted === true) return Promise.reject(signalError(kind, context, signal));
    if (this.#endReason !== undefined) return Promise.reject(this.#endedError(kind, context));
    const id = this.#nextId;
    this.#nextId = (id % 0xffff_ffff) + 1;
    return new Promise<Answer>((resolve, reject) => {
      const settle = (then: () => void): void => {
        this.#pending.delete(id);
        clearTimeout(timer);
        clearImmediate(turn);
        signal?.removeEventListener("abort", giveUp);
        this.#activeCount -= holds;
        if (this.#activeCount === 0) this.#framed.socket.unref();
        then();
      };
      const giveUp = (): void => {
        this.#send({ kind: "cancel", id });
        const over = (): void =>
          settle(() => reject(signalError(kind, context, signal as AbortSignal)));
        // A barrier may have released the others already: the store answers whether it has.
        clearTimeout(timer);
        clearImmediate(turn);
        if (kind === "barrier") timer = setTimeout(over, withdrawTimeoutMs).unref();
        else over();
      };
      const silent = (): void => {
        const what = `${kind}: the store did not answer within ${timeoutMs} ms`;
        const hint = "the process that hosts it may be blocked or stopped";
        settle(() => reject(storeError(what, hint, context)));
      };
      // Where this process was stopped, the answer may be in its socket, which is read after the timers. The turn keeps
      // the process alive, but only that long; one without a reference would wait for whatever wakes the process next.
      const late = (): void => {
        turn = setImmediate(silent);
      };
      let turn: NodeJS.Immediate | undefined;
      let timer = setTimeout(late, Math.min(timeoutMs + graceMs, longestTimerMs)).unref();
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#pending.set(id, {
        answered: (answer) => {
          if (!isAnswerTo(args, answer, context.size))
            throw new FrameError(`a wrong answer to ${kind}`);
          settle(() => resolve(answer));
        },
        failed: (failure) => settle(() => reject(failureError(kind, failure, context))),
        over: () => settle(() => reject(this.#endedError(kind, context))),
      });
      this.#activeCount += holds;
      if (this.#activeCount > 0) this.#framed.socket.ref();
      this.#send({ ...args, id } as Request);
    });
  }

  /** Sends `leave` and ends. Bounded and idempotent. */
  leave(status?: string): Promise<void> {
    this.#leaving ??= this.#leave(status);
    return this.#leaving;
  }

  /** Ends without `leave`: to the others this rank is lost. */
  destroy(): void {
    this.#framed.destroy();
    this.#end("left");
  }

  async #leave(status: string | undefined): Promise<void> {
    if (this.#endReason !== undefined) return;
    this.#end("left");
    this.#framed.socket.ref();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, leaveTimeoutMs);
      this.#onLeft = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#send({ kind: "leave", status });
    });
    this.#framed.destroy();
  }

  #send(request: Request): void {
    this.#framed.write(encode(requests, request));
  }

  #frame(frame: Buffer): void {
    const reply = decode(replies, frame);
    switch (reply.kind) {
      case "failed":
        this.#pending.get(reply.id)?.failed(reply);
        return;
      case "lost":
      case "news":
      case "asked":
      case "began":
        this.#pushed(reply);
        return;
      case "closing":
        this.#framed.destroy();
        this.#onLeft?.();
        this.#end({ reason: reply.reason });
        return;
      case "bye":
        this.#onLeft?.();
        return;
      case "welcome":
        return;
      default:
        this.#pending.get(reply.id)?.answered(reply);
        return;
    }
  }

  #lost(reason: string): void {
    this.#onLeft?.();
    if (this.#endReason !== undefined) return;
    this.#end({ reason });
    this.#storeLoss = { rank: undefined, atMs: Date.now(), reason };
    for (const listener of [...this.#listeners.values()]) listener.storeLost(this.#storeLoss);
  }

  #end(over: "left" | { readonly reason: string }): void {
    this.#endReason ??= over;
    for (const pending of [...this.#pending.values()]) pending.over();
  }

  #endedError(request: string, context: ErrorContext): Error {
    if (this.#endReason === "left") {
      const headline = `${request}: this rank has left the job "${context.jobId}"`;
      const facts = {
        rank: context.rank,
        size: context.size,
        comm: context.jobId,
        collective: request,
      };
      return new CommClosedError({ headline, hint: "connect() joins the job again" }, facts);
    }
    const what = `${request}: the store is gone: ${this.#endReason?.reason}`;
    const hint = "its host ended; a store hosted by the launcher outlives every rank";
    return storeError(what, hint, context);
  }

  #pushed(push: Push): void {
    const listener = this.#listeners.get(push.generation);
    if (listener !== undefined) listener.pushed(push);
    // A membership may be about to begin; news of a past one have no receiver.
    else if ([...this.#listeners.keys()].every((each) => each < push.generation))
      this.#early.push(push);
  }
}

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

  onLost(listener: (peer: LostPeer) => void): () => void {
    for (const peer of this.lost) listener(peer);
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    shortText("set", "key", key, limits.keyBytes);
    valueBytes("set", value);
    const { generation } = this;
    await this.#request({ kind: "set", generation, key, value }, defaultWaitMs, undefined);
  }

  async get(key: string, options: GetOptions = {}): Promise<Uint8Array> {
    shortText("get", "key", key, limits.keyBytes);
    const timeoutMs = milliseconds("get", "timeoutMs", options.timeoutMs);
    const { needs } = options;
    const args = { kind: "get", generation: this.generation, key, timeoutMs, needs } as const;
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

  onNews(listener: (news: string, rank: number) => void): () => void {
    this.#newsListeners.add(listener);
    const early = this.#earlyNews;
    this.#earlyNews = [];
    for (const { news, rank } of early) listener(news, rank);
    return () => this.#newsListeners.delete(listener);
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
    args: Parameters<RendezvousSession["request"]>[0],
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
