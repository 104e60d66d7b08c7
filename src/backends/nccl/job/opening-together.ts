/**
 * Opens one life of a job on all of its ranks, or on none: a failure on one reaches the others at once.
 *
 * NCCL reports a failed start on its own rank alone: the others would wait inside of theirs until the deadline. So a rank that fails
 * sets a key of the job's store, which all ranks watch until every start has succeeded.
 */
import {
  type CommError,
  CommTimeoutError,
  InvalidArgumentError,
  RemoteRankError,
} from "../../../api/index.ts";
import type { Membership } from "../rendezvous/index.ts";

const failureKey = "opening failed";

/** A failure as the others get it. */
interface Told {
  readonly rank: number;
  readonly code: string | undefined;
  readonly text: string;
}

/** One rank's end. */
export interface OwnEnd<T> {
  /** Opens it; rejects soon when it is given up. */
  open(givenUp: AbortSignal): Promise<T>;
  /** Gives back what was opened, since not all ranks could. */
  giveBack(opened: T): Promise<void>;
}

/** Opens this rank's end. Rejects on every rank as soon as one cannot open its own, or is lost meanwhile. */
export async function openTogether<T>(
  membership: Membership,
  leftMs: () => number,
  signal: AbortSignal | undefined,
  { open, giveBack }: OwnEnd<T>,
): Promise<T> {
  const over = new AbortController();
  const givenUp = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  const others = failureOfOthers(membership, leftMs(), over.signal);
  const opening = open(givenUp);
  try {
    const opened = await Promise.race([opening, others]);
    const wait = { timeoutMs: leftMs(), signal: givenUp };
    await Promise.race([membership.exchange("opened", new Uint8Array(0), wait), others]);
    return opened;
  } catch (error) {
    tell(membership, error);
    over.abort(error);
    await opening.then(giveBack).catch(() => undefined);
    throw error;
  } finally {
    over.abort();
  }
}

/** Rejects when another rank says that it failed, or is lost; else it is never heard of. */
function failureOfOthers(
  membership: Membership,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<never> {
  return new Promise((_, reject) => {
    membership.get(failureKey, { timeoutMs, signal }).then(
      (value) => reject(errorOf(value, membership)),
      (error: CommError) => {
        // Without the store, or past the deadline, the opening itself has the error.
        if (error.code === "ERR_COMM_REMOTE") reject(error);
      },
    );
  });
}

/** The first failure counts; it is not waited for. */
function tell(membership: Membership, error: unknown): void {
  const { code, message } = error as Partial<CommError>;
  const text = String(message ?? error).split("\n")[0] ?? "";
  const told: Told = { rank: membership.rank, code, text: text.slice(0, 1000) };
  const value = new TextEncoder().encode(JSON.stringify(told));
  membership.set(failureKey, value).catch(() => undefined);
}

function errorOf(value: Uint8Array, { rank: own, size, jobId, generation }: Membership): CommError {
  const { rank, code, text } = JSON.parse(new TextDecoder().decode(value)) as Told;
  const words = {
    headline: `connect: rank ${rank} of generation ${generation + 1} could not open its end: ${text}`,
    hint: `look at the output of rank ${rank}`,
  };
  const facts = { rank: own, size, comm: jobId, ranks: [rank] };
  // What is wrong with an argument stays wrong, and is not tried again on any rank.
  if (code === "ERR_COMM_ARG") return new InvalidArgumentError(words, facts);
  // The deadline of one rank is about to be that of all.
  if (code === "ERR_COMM_TIMEOUT") return new CommTimeoutError(words, facts);
  return new RemoteRankError(words, facts);
}
