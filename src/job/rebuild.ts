/**
 * Opens a generation of a job on all of its ranks, or on none; and the next generation with the survivors of a loss.
 *
 * A start that fails may be reported on its own rank alone: the others would wait inside of theirs until the deadline. So a rank
 * that fails sets a key of the job's store, which all ranks watch until every start has succeeded.
 */
import type { JoinRequest, Session } from "../api/backend-entry.ts";
import { firstLine } from "../api/error-text.ts";
import {
  BackendUnavailableError,
  CommError,
  CommTimeoutError,
  InvalidArgumentError,
  RemoteRankError,
} from "../api/errors.ts";
import { pause } from "./async.ts";
import { decode, encode, line, type MessageOf, optional, text, whole } from "./frames.ts";
import { limits } from "./protocol.ts";
import type { Membership } from "./rendezvous.ts";

/** Pauses before the second and the third attempt. There are few: a start that cannot be cancelled may keep a thread. */
const retryPausesMs = [250, 1_000];

/** Opens the session of this process in a generation. */
export interface GenerationOpener {
  /** Opens the session of one generation within a time. */
  open(membership: Membership, timeoutMs: number): Promise<Session>;
  /** Longest time for all attempts, from the first rejoin on. */
  readonly timeoutMs: number;
}

/** The generation that is left, and the ranks to go on without. */
interface RebuildRequest {
  /** The newest generation that this process is in. */
  readonly from: Membership;
  /** Ranks of it to go on without. */
  readonly without: readonly number[] | undefined;
  /** The initial ranks of the generation that is rebuilt: errors number ranks as it does. */
  readonly initialRanks: readonly number[];
  /** Resolves when this process has released the resources of the last generation. */
  readonly closed: Promise<void>;
  /** Called with the membership of each attempt. */
  readonly onMembership: (membership: Membership) => void;
}

/** Longest wait for one more survivor: a call under way ends within two seconds, and its process may be busy after that. */
const settleMs = 10_000;

/**
 * Opens the next generation with the survivors. Where that fails on any rank, all rejoin in a further generation and try again:
 * resources of the last generation may not be released yet.
 *
 * This process rejoins before its old resources are released: the next generation begins with an exchange that waits for
 * every rank.
 *
 * Rejects as `rejoin` does where the first rejoin fails.
 *
 * @throws BackendUnavailableError when no attempt succeeded, with the last attempt's cause. InvalidArgumentError at once,
 * because another attempt would fail with the same argument.
 */
export async function rebuildJob(
  opener: GenerationOpener,
  { from, without, initialRanks, closed, onMembership }: RebuildRequest,
): Promise<Session> {
  let membership = await from.rejoin({ without, settleMs });
  onMembership(membership);
  await closed;
  const end = performance.now() + opener.timeoutMs;
  const leftMs = (): number => Math.max(1, end - performance.now());
  const failures: unknown[] = [];
  for (;;) {
    try {
      return await opener.open(membership, leftMs());
    } catch (error) {
      if (error instanceof InvalidArgumentError) throw error;
      failures.push(error);
    }
    const pauseMs = retryPausesMs[failures.length - 1];
    if (pauseMs === undefined || pauseMs >= leftMs())
      throw notOpenedError(failures, membership, initialRanks);
    await pause(pauseMs);
    try {
      // Every rank of the generation takes part, however late it notices the failure.
      membership = await membership.rejoin({ settleMs: leftMs(), deadlineMs: leftMs() });
      onMembership(membership);
    } catch (error) {
      throw notOpenedError(failures, membership, initialRanks, error);
    }
  }
}

/** The error after the last attempt. Its ranks are those of its cause, or this rank. */
function notOpenedError(
  failures: readonly unknown[],
  membership: Membership,
  initialRanks: readonly number[],
  rejoinError?: unknown,
): CommError {
  const tries = failures.length === 1 ? "1 try" : `${failures.length} tries`;
  const cause = rejoinError ?? failures.at(-1);
  const before = (rank: number): number =>
    initialRanks.indexOf(membership.initialRanks[rank] as number);
  const culprits = (cause as Partial<CommError>).ranks ?? [];
  const rank = before(membership.rank);
  const rows = failures.map((error, at) => [`try ${at + 1}`, firstLine(error)]);
  return new BackendUnavailableError(
    {
      headline: `rebuild: the next generation of "${membership.jobId}" was not opened in ${tries}`,
      table: rejoinError === undefined ? rows : [...rows, ["then", firstLine(rejoinError)]],
      hint: "call rebuild() again once the cause is gone, without ranks that keep failing; or close()",
    },
    {
      ...{ rank, size: initialRanks.length, comm: membership.jobId, cause },
      ranks: culprits.length > 0 ? culprits.map(before) : [rank],
    },
  );
}

const failureKey = "opening failed";

/** Most characters of the text of a failure for the others; longer ones are cut. */
const longestText = 1_000;

/** A failure in the store, for the other ranks. */
const failures = {
  failure: {
    ...{ rank: whole(0, limits.ranks - 1), code: optional(text(limits.keyBytes)) },
    text: line(4 * longestText),
  },
};

/** Bounds of the opening of a rank. */
export interface OpenBounds {
  /** The whole time, for messages, and what is left of it. */
  readonly timeoutMs: number;
  readonly leftMs: () => number;
  /** Fires when another rank fails or is lost, or the caller gives up. */
  readonly cancelled: AbortSignal;
}

/** Opens the rank of this process in a generation. */
export interface RankOpener<T> {
  /** Rejects soon after `cancelled` fires. */
  open(membership: Membership, bounds: OpenBounds): Promise<T>;
  /** Releases an opening after another rank failed. */
  undo(opened: T): Promise<void>;
}

/** Opens this rank. Rejects on every rank as soon as one of them fails to open or is lost. */
export async function openOnAllRanks<T>(
  membership: Membership,
  { open, undo }: RankOpener<T>,
  { timeoutMs, signal }: Pick<JoinRequest, "timeoutMs" | "signal">,
): Promise<T> {
  const end = performance.now() + timeoutMs;
  const leftMs = (): number => Math.max(1, end - performance.now());
  const over = new AbortController();
  const cancelled = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  const others = remoteFailure(membership, leftMs(), over.signal);
  const opening = open(membership, { timeoutMs, leftMs, cancelled });
  try {
    const opened = await Promise.race([opening, others]);
    const wait = { timeoutMs: leftMs(), signal: cancelled };
    await Promise.race([membership.exchange("opened", new Uint8Array(0), wait), others]);
    return opened;
  } catch (error) {
    reportFailure(membership, error);
    over.abort(error);
    await opening.then(undo).catch(() => undefined);
    throw error;
  } finally {
    over.abort();
  }
}

/** Rejects when another rank reports a failure or is lost; else it stays pending. */
function remoteFailure(
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

/** The first failure stays in the store. Nothing waits for the write. */
function reportFailure(membership: Membership, error: unknown): void {
  const { code } = error instanceof CommError ? error : { code: undefined };
  const text = firstLine(error).slice(0, longestText);
  const value = encode(failures, { kind: "failure", rank: membership.rank, code, text });
  membership.set(failureKey, value).catch(() => undefined);
}

/** The failure that a rank has set; `undefined` for anything else. */
function failureOf(value: Uint8Array, size: number): MessageOf<typeof failures> | undefined {
  try {
    const failure = decode(failures, value);
    return failure.rank < size ? failure : undefined;
  } catch {
    return undefined;
  }
}

function errorOf(value: Uint8Array, { rank: own, size, jobId, generation }: Membership): CommError {
  const failure = failureOf(value, size);
  const { rank, code, text } = failure ?? { text: "it reports that in no form of this version" };
  const who = rank === undefined ? "another rank" : `rank ${rank}`;
  const words = {
    headline: `connect: ${who} of generation ${generation + 1} could not open its session: ${text}`,
    hint: `look at the output of ${rank === undefined ? "all ranks" : who}`,
  };
  const facts = { rank: own, size, comm: jobId, ranks: rank === undefined ? [] : [rank] };
  // An argument error stays one, so that no rank tries again.
  if (code === "ERR_COMM_ARG") return new InvalidArgumentError(words, facts);
  // The ranks take another backend together, or none does.
  if (code === "ERR_COMM_BACKEND") return new BackendUnavailableError(words, facts);
  // All ranks share the deadline.
  if (code === "ERR_COMM_TIMEOUT") return new CommTimeoutError(words, facts);
  return new RemoteRankError(words, facts);
}
