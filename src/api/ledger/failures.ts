/** Failed calls: the error of each rank, the end of a communicator, and failures that the program has not observed. */
import type { CommInfo, Session } from "../backend.ts";
import { callText, type ErrorText, errorText } from "../error-text.ts";
import { type Caller, CommAbortedError, CommError, type CommErrorFacts } from "../errors.ts";
import { failOp, type Operation } from "../op.ts";
import type { Posting } from "./posting.ts";

/** Fails operations, and records their failures. */
export class Failures {
  readonly #comm: CommInfo;
  /** Called for an unobserved failure. */
  readonly #onUnobserved: () => void;
  readonly #counts: number[];
  /** By rank, a later call that was refused for a failure before it; `true` once closing has reported. */
  #reported: (Operation | true | undefined)[] = [];
  #unobserved: Operation[][];
  /** True when no rank has an unobserved failure, as far as is known: every call reads it. Only this class sets it. */
  allObserved = true;
  /** Calls of which one end has failed already. */
  readonly #halfFailed = new WeakSet<Operation>();

  constructor(comm: CommInfo, onUnobserved: () => void) {
    this.#comm = comm;
    this.#onUnobserved = onUnobserved;
    this.#counts = comm.ranks.map(() => 0);
    this.#unobserved = comm.ranks.map(() => []);
  }

  /** Fails an operation; one that has settled stays as it is. */
  fail(op: Operation, error: unknown): void {
    if (!op.pending) return;
    this.record(op);
    failOp(op, error);
  }

  /** Fails calls, each with its own error. */
  failEach(postings: readonly Posting[], errorOf: (posting: Posting) => unknown): void {
    for (const posting of postings) this.fail(posting.op, errorOf(posting));
  }

  /** Records an operation that failed, or is about to fail. */
  record(op: Operation): void {
    if (!this.#halfFailed.has(op.callOp)) this.#counts[op.rank] = this.count(op.rank) + 1;
    if (op.callOp !== op) this.#halfFailed.add(op.callOp);
    if (!op.isObserved) {
      this.#unobserved[op.rank]?.push(op);
      this.allObserved = false;
      this.#onUnobserved();
    }
  }

  /** Fails a call that is refused for an earlier failure: its error reports that one. */
  refuse(op: Operation, error: unknown): void {
    if (!this.#isReported(op.rank)) this.#reported[op.rank] = op;
    this.fail(op, error);
  }

  /** Closing has reported the failures of a rank. */
  markReported(rank: number): void {
    this.#reported[rank] = true;
  }

  /** `poison` of a rank, unless a later call or closing has reported its failures. */
  unreported(rank: number): CommAbortedError | undefined {
    return this.#isReported(rank) ? undefined : this.poison(rank);
  }

  /** Number of a rank's calls that have failed, since the communicator was made. */
  count(rank: number): number {
    return this.#counts[rank] as number;
  }

  /** The error that an unobserved failure gives to all later calls of its rank. */
  poison(rank: number): CommAbortedError | undefined {
    if (this.allObserved) return undefined;
    const unseen = this.#unobserved[rank] as Operation[];
    if (unseen.length === 0) return undefined;
    const still = unseen.filter((op) => !op.isObserved);
    this.#unobserved[rank] = still;
    this.allObserved = this.#unobserved.every((ops) => ops.length === 0);
    const first = still[0];
    if (first === undefined) return undefined;
    const { name, ranks } = this.#comm;
    const what = first.call < 0 ? "a call" : `call ${first.call}`;
    const [reason = ""] = errorText(first.error).split("\n");
    return new CommAbortedError(
      {
        headline: `${what} on "${name}" failed and was never awaited: ${reason}`,
        hint: "await every operation, or handle its rejection",
      },
      { rank, size: ranks.length, comm: name, call: first.call, cause: first.error },
    );
  }

  /** Forgets the failures; the counts go on. */
  clear(): void {
    if (!this.allObserved) this.#unobserved = this.#comm.ranks.map(() => []);
    this.allObserved = true;
    this.#reported = [];
  }

  #isReported(rank: number): boolean {
    const report = this.#reported[rank];
    return report === true || report?.isObserved === true;
  }
}

// Errors that differ from rank to rank.

/** Thrown while a set is being prepared; never seen by callers, which get the error made for their rank. */
export class PerRankError extends Error {
  readonly errorOf: (posting: Posting) => CommError;

  constructor(errorOf: (posting: Posting) => CommError) {
    super("the call cannot be served");
    this.errorOf = errorOf;
  }
}

/** The error of each rank's call: one made for ranks, or the given one with the facts of the rank. */
export function errorsByCall(
  error: unknown,
  { session, comm }: { readonly session: Session; readonly comm: CommInfo },
): (posting: Posting) => unknown {
  if (error instanceof PerRankError) return error.errorOf;
  if (!(error instanceof CommError)) return () => error;
  return (posting) => {
    const { call, worldRank } = posting.op;
    const device = session.device(worldRank).name;
    const facts = { ...postedFacts(comm, posting), device };
    return error.seenBy(call < 0 ? { ...facts, call: undefined } : facts);
  };
}

// The end of a communicator.

/** A call that fails because its communicator has ended. */
export interface CallLabel {
  readonly collective: string;
  /** -1 for one that was made too late to be numbered. */
  readonly call: number;
  /** Name of its communicator. */
  readonly comm: string;
}

/** Makes the error of a call on an ended communicator; `caller` is the world rank of the program that gets it. */
export type Termination = (rank: number, caller: number, failed?: CallLabel) => CommError;

/** The errors of calls on a communicator, or on all of a world, that ends for one reason; each begins with the name of its call. */
export function terminationOf(
  ErrorClass: new (text: ErrorText, facts: CommErrorFacts) => CommError,
  scope: CommInfo | Omit<Caller, "rank">,
  { headline, hint }: ErrorText,
  given: CommErrorFacts,
): Termination {
  const isWorld = "comm" in scope;
  const { comm, size } = isWorld ? scope : { comm: scope.name, size: scope.ranks.length };
  return (rank, caller, failed) =>
    new ErrorClass(
      { headline: callText(failed) + headline, hint },
      { rank: isWorld ? caller : rank, size, comm, ...given, ...callFacts(failed, comm) },
    );
}

/** The facts of the call for an error about communicator `comm`; the number counts on the call's own one alone. */
export function callFacts(failed: CallLabel | undefined, comm: string): CommErrorFacts {
  if (failed === undefined) return {};
  const { collective, call } = failed;
  return failed.comm === comm ? { collective, call } : { collective };
}

/** The facts of a rank's call for an error; `collective` is that of a recorded call, where the rank has posted its capture. */
export function postedFacts(
  { name, ranks }: CommInfo,
  { op, call }: Posting,
  collective: string = call.collective,
): CommErrorFacts {
  return { rank: op.rank, size: ranks.length, comm: name, collective, call: op.call };
}

/** A call that its signal takes back. */
export interface Cancellation {
  readonly wasSubmitted: boolean;
  /** Ranks elsewhere go on with the call, so that the communicator ends here. */
  readonly endsAll: boolean;
}
