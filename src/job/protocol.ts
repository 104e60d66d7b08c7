/** The messages between ranks and the store, their limits, and the errors that failures stand for. */
import {
  CommAbortedError,
  CommClosedError,
  type CommError,
  CommTimeoutError,
  InvalidArgumentError,
  RemoteRankError,
  RendezvousError,
} from "../api/errors.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { maxProcesses } from "../api/world/launchers.ts";
import {
  base64Bytes,
  bytes,
  type Field,
  FrameError,
  flag,
  line,
  listOf,
  type MessageOf,
  oneOf,
  optional,
  shared,
  text,
  whole,
} from "./frames.ts";
import type { Barrier } from "./rendezvous.ts";

/** Limits on data and connections of strangers and of faulty ranks. */
export const limits = {
  /** Bytes of a frame of a rank before it has joined. */
  firstFrameBytes: 4_096,
  /** Longest time from the connection to the authenticated request to join. */
  handshakeMs: 5_000,
  /** Time between parallel attempts to connect. */
  reconnectMs: 250,
  /** Connections at the same step before the join; one more drops the oldest of them. */
  pendingConnections: 64,
  jobIdBytes: 128,
  keyBytes: 256,
  valueBytes: 2 ** 20,
  /** The result of one exchange for each rank. */
  exchangeBytes: 2 ** 24,
  /** All values of one generation, with their keys and overhead. */
  storeBytes: 2 ** 26,
  /** Overhead of a value, beside its own and its key's bytes. */
  entryBytes: 128,
  /** Most unread bytes of a rank's connection; a rank with more is lost. */
  unsentBytes: 2 ** 27,
  ranks: maxProcesses,
  /** Barriers at which one rank waits at once. */
  barriers: 2 ** 14,
  /** Barriers of one key at which one rank waits at once. */
  rounds: 64,
  /** Keys and answers that one rank waits for at once; in larger jobs 4 for each rank. */
  waits: 2 ** 14,
} as const;

/** Most bytes of a rank's frame: a value as base64 and its other fields. */
export const requestFrameBytes: number = base64Bytes(limits.valueBytes) + 2 ** 20;

/** Most bytes of a store's frame: the values of an exchange as base64 and its other fields. */
export const replyFrameBytes: number = base64Bytes(limits.exchangeBytes) + 2 ** 21;

/** Length of the text that joins the two connections of a rank. */
export const tokenBytes = 16;

const id = whole(0, 2 ** 32 - 1);
const generation = whole(0, 2 ** 32 - 1);
const milliseconds = whole(0, longestTimerMs);
const time = whole(0, Number.MAX_SAFE_INTEGER);
const rank = whole(0, limits.ranks - 1);
const ranks = listOf(rank, limits.ranks);
const key = text(limits.keyBytes);
const value = bytes(limits.valueBytes);
/** News, an answer or a status. */
const longText = text(limits.valueBytes);
const version = whole(0, Number.MAX_SAFE_INTEGER);
const token = bytes(tokenBytes, tokenBytes);
/** A text that errors show. */
const words = line(2 ** 16);
const sharedRanks = shared(ranks);

/** A barrier as `[key, ranks]`. */
const barrier: Field<Barrier> = {
  read: (json) => {
    if (!Array.isArray(json) || json.length !== 2) throw new FrameError("barriers as [key, ranks]");
    return { key: key.read(json[0]), ranks: ranks.read(json[1]) };
  },
  write: (each) => JSON.stringify([each.key, each.ranks]),
};

/** From a rank to the store. `id` comes back with the answer; `generation` is the one of the sender. */
export const requests = {
  /** The first frame of a connection for messages. The token is a random one. */
  hello: { version, token },
  /** The first and only frame of a connection that serves liveness alone, for the connection with that token. */
  liveness: { version, token },
  join: {
    ...{ id, generation, rank, size: whole(1, limits.ranks), timeoutMs: milliseconds },
    /** The limit in messages, of which `timeoutMs` is left. */
    limitMs: milliseconds,
    jobId: text(limits.jobIdBytes),
    /** Host and process, for messages. */
    label: line(limits.keyBytes),
  },
  set: { id, generation, key, value },
  get: { id, generation, key, timeoutMs: milliseconds },
  /** Waits at all these barriers, or with a value at one of them. */
  barrier: {
    ...{ id, generation, timeoutMs: milliseconds, value: optional(value) },
    barriers: listOf(barrier, limits.barriers),
  },
  rejoin: {
    ...{ id, generation, without: optional(ranks) },
    ...{ settleMs: milliseconds, timeoutMs: milliseconds },
  },
  /** News for some ranks; without an answer. */
  announce: { generation, ranks, news: longText },
  /** A question to another rank, answered by it, or by the status that it left. */
  ask: { id, generation, rank, question: key, timeoutMs: milliseconds },
  /** The answer to a question that the store has passed on, by the number of the question. */
  answer: { id, generation, text: longText },
  cancel: { id },
  /** The status answers later questions. */
  leave: { status: optional(longText) },
};

/** A message from a rank. */
export type Request = MessageOf<typeof requests>;

/** Why a request failed; each stands for a class of error. */
const failureCodes = ["timeout", "gone", "over", "refused", "taken", "limit", "in use"] as const;

/** From the store to a rank. */
export const replies = {
  /** The answer to a hello. */
  welcome: { version },
  joined: {
    ...{ id, generation, rank, initialRanks: sharedRanks },
    /** True when the process of initial rank 0 hosts the store. */
    hosted: flag,
  },
  done: { id },
  /** It released no rank. */
  withdrawn: { id },
  value: { id, value },
  values: { id, values: shared(listOf(value, limits.ranks)) },
  failed: {
    ...{ id, code: oneOf(failureCodes), headline: words, hint: words },
    /** The ranks of the failure: missing, lost, in the way, or gone on to the next generation. */
    ranks: sharedRanks,
    /** For a join or rejoin that timed out: the present ranks. */
    joined: ranks,
  },
  answered: { id, text: longText },
  // Pushed, without a request.
  lost: { generation, rank, atMs: time, reason: words },
  /** News of a rank. */
  news: { generation, rank, news: longText },
  asked: { id, generation, question: key },
  /** The next generation began with these ranks of this one, and without this rank. */
  began: { generation, ranks: sharedRanks },
  closing: { reason: words },
  bye: {},
};

/** A message from the store. */
export type Reply = MessageOf<typeof replies>;

/** The failure of a request. */
export type Failure = Omit<Extract<Reply, { kind: "failed" }>, "kind" | "id">;

// Failures as errors of the library.

/** The rank and the store that an error names. */
export interface ErrorContext {
  readonly address: string;
  readonly jobId: string;
  readonly rank: number;
  readonly size: number;
}

/** Others have not left the generation that this rank has left: a later request may succeed. */
export class StillInUseError extends RendezvousError {
  /** Past the deadline of the join it is an ordinary error of the rendezvous. */
  override get name(): string {
    return RendezvousError.name;
  }
}

/** The error of a request that the store failed. */
export function failureError(request: string, failure: Failure, context: ErrorContext): CommError {
  const { code, ranks, joined } = failure;
  const facts = {
    rank: context.rank,
    size: context.size,
    comm: context.jobId,
    ranks,
    collective: request,
  };
  const forms = request === "join" || request === "rejoin";
  const text = { headline: failure.headline, hint: failure.hint };
  const isGone = request === "join" && code === "gone";
  if (isGone || (forms && (code === "timeout" || code === "refused" || code === "in use"))) {
    const headline = `rendezvous at ${context.address} of job "${context.jobId}": ${failure.headline}`;
    const missing = code === "refused" ? [] : ranks;
    const Kind = code === "in use" ? StillInUseError : RendezvousError;
    return new Kind({ ...text, headline }, { ...facts, address: context.address, joined, missing });
  }
  switch (code) {
    case "timeout":
      return new CommTimeoutError(text, facts);
    case "gone":
      return new RemoteRankError(text, facts);
    case "over":
      return new CommClosedError(text, facts);
    case "taken":
      return new InvalidArgumentError(text, { ...facts, field: "key" });
    case "limit":
      return new InvalidArgumentError(text, { ...facts, field: "value" });
    case "in use":
    case "refused":
      return new RendezvousError(text, { ...facts, address: context.address });
  }
}

/** The error of a rank that cannot reach the store, or lost it. */
export function storeError(
  what: string,
  hint: string,
  context: ErrorContext,
  cause?: unknown,
): RendezvousError {
  return new RendezvousError(
    { headline: `rendezvous at ${context.address} of job "${context.jobId}": ${what}`, hint },
    {
      rank: context.rank,
      size: context.size,
      comm: context.jobId,
      address: context.address,
      cause,
    },
  );
}

/** The error of a wait with a signal that fired. */
export function signalError(
  request: string,
  context: ErrorContext,
  signal: AbortSignal,
): CommAbortedError {
  return new CommAbortedError(
    { headline: `${request}: given up by its signal` },
    {
      ...{ rank: context.rank, size: context.size, comm: context.jobId, collective: request },
      cause: signal.reason,
    },
  );
}
