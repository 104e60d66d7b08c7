/** Failures of the store, and of the connection to it, as errors of the library. */
import {
  CommAbortedError,
  CommClosedError,
  type CommError,
  CommTimeoutError,
  InvalidArgumentError,
  RemoteRankError,
  RendezvousError,
} from "../api/index.ts";
import type { Failure } from "./protocol.ts";

/** The rank and the store that an error names. */
export interface ErrorContext {
  readonly address: string;
  readonly jobId: string;
  readonly rank: number;
  readonly size: number;
}

/** Others have not left the generation that this rank has left: a later request may succeed. */
export class StillInUseError extends RendezvousError {
  /** To a caller with a deadline that passes it is one like others. */
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
  if (forms && (code === "timeout" || code === "refused" || code === "in use")) {
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
