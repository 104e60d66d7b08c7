/** The client of a rank: its authenticated session with the store. */

import { CommClosedError } from "../api/errors.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import type { FramedSocket } from "./connection.ts";
import { decode, encode, FrameError } from "./frames.ts";
import {
  type ErrorContext,
  type Failure,
  failureError,
  type Reply,
  type Request,
  replies,
  requests,
  signalError,
  storeError,
} from "./protocol.ts";
import type { LostPeer } from "./rendezvous.ts";

/** A request without the number that the session gives it. */
export type RequestArgs = {
  [K in Request["kind"]]: Omit<Extract<Request, { kind: K }>, "id">;
}[Exclude<Request["kind"], "announce" | "answer" | "cancel" | "hello" | "leave" | "liveness">];

/** The name of a request in errors. */
function nameOf(args: RequestArgs): string {
  return args.kind === "barrier" && args.value !== undefined ? "exchange" : args.kind;
}

/** The answer of a request that worked. */
export type Answer = Exclude<Reply, { kind: "welcome" | "failed" | "closing" | "bye" } | Push>;

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
export type Push = Extract<Reply, { kind: "lost" | "news" | "asked" | "began" }>;

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
