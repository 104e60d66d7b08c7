/**
 * The way to the next life of a job: its survivors come together and open it. Where that fails, on whichever rank, all of
 * them meet again, in a generation of its own, and try again: parts of the life before may be in the way for
 * a while.
 */
import {
  BackendUnavailableError,
  type CommError,
  CommTimeoutError,
  InvalidArgumentError,
  RemoteRankError,
  type Session,
} from "../../../api/index.ts";
import { pause } from "../common/async.ts";
import { firstLine } from "../common/text.ts";
import type { Membership } from "../rendezvous/index.ts";

/**
 * Pauses before a life is tried again; after the last of them no more. There are few, because NCCL's start cannot be called
 * off: one that hangs keeps one of Node's four threads.
 */
const pausesMs = [250, 1_000];

/** The opening of this process's sessions. */
export interface GenerationOpener {
  /** Opens the session in one life of the job, within that time. */
  open(membership: Membership, timeoutMs: number): Promise<Session>;
  /** Longest time for all tries to open the next life, from the survivors' first meeting. */
  readonly timeoutMs: number;
}

/** The survivors, and their generation. */
interface RebuildRequest {
  /** The newest generation that this process is in. */
  readonly from: Membership;
  /** Ranks of it to go on without. */
  readonly without: readonly number[] | undefined;
  /** The ranks of the life that is rebuilt, as they were at first: errors number ranks as it does. */
  readonly initialRanks: readonly number[];
  /** Resolves when the life before is given back on this process. */
  readonly closed: Promise<void>;
  /** Gets each membership on the way, of which the last is the newest. */
  readonly onMembership: (membership: Membership) => void;
}

/** A process that is there, but in a call, hears of the rebuild within two seconds; it may be busy for some more. */
const settleMs = 10_000;

/**
 * Goes from one generation to the next that opens.
 *
 * The survivors hear at once that this process is one of them, however long it takes to give the life before back: the
 * next one begins with an exchange, at which each is waited for.
 *
 * Rejects as `rejoin` does where the survivors do not come together at first.
 *
 * @throws BackendUnavailableError when they came together and no try opened; its cause is that of the last.
 *   InvalidArgumentError at once: what is wrong with an argument stays wrong.
 */
export async function rebuildJob(
  lives: GenerationOpener,
  { from, without, initialRanks, closed, onMembership }: RebuildRequest,
): Promise<Session> {
  let membership = await from.rejoin({ without, settleMs });
  onMembership(membership);
  await closed;
  const end = performance.now() + lives.timeoutMs;
  const leftMs = (): number => Math.max(1, end - performance.now());
  const failures: unknown[] = [];
  for (;;) {
    try {
      return await lives.open(membership, leftMs());
    } catch (error) {
      if (error instanceof InvalidArgumentError) throw error;
      failures.push(error);
    }
    const pauseMs = pausesMs[failures.length - 1];
    if (pauseMs === undefined || pauseMs >= leftMs())
      throw notOpened(failures, membership, initialRanks);
    await pause(pauseMs);
    try {
      // All present ranks take part, however late they notice.
      membership = await membership.rejoin({ settleMs: leftMs(), deadlineMs: leftMs() });
      onMembership(membership);
    } catch (error) {
      throw notOpened(failures, membership, initialRanks, error);
    }
  }
}

/** The final error. Its ranks are those to blame, as far as this rank knows. */
function notOpened(
  failures: readonly unknown[],
  membership: Membership,
  initialRanks: readonly number[],
  apart?: unknown,
): CommError {
  const tries = failures.length === 1 ? "1 try" : `${failures.length} tries`;
  const cause = apart ?? failures.at(-1);
  const before = (rank: number): number =>
    initialRanks.indexOf(membership.initialRanks[rank] as number);
  const told = (cause as Partial<CommError>).ranks ?? [];
  const rank = before(membership.rank);
  const rows = failures.map((error, at) => [`try ${at + 1}`, firstLine(error)]);
  return new BackendUnavailableError(
    {
      headline: `rebuild: the next life of "${membership.jobId}" was not opened in ${tries}`,
      table: apart === undefined ? rows : [...rows, ["then", firstLine(apart)]],
      hint: "call rebuild() again once the cause is gone, without ranks that keep failing; or close()",
    },
    {
      ...{ rank, size: initialRanks.length, comm: membership.jobId, cause },
      ranks: told.length > 0 ? told.map(before) : [rank],
    },
  );
}

const failureKey = "opening failed";

/** A failure as the others get it. */
interface OpeningFailure {
  readonly rank: number;
  readonly code: string | undefined;
  readonly text: string;
}

/** One rank's end. */
interface RankOpening<T> {
  /** Opens it; rejects soon when it is given up. */
  open(givenUp: AbortSignal): Promise<T>;
  /** Gives back what was opened, since not all ranks could. */
  undo(opened: T): Promise<void>;
}

/** Opens this rank's end. Rejects on every rank as soon as one cannot open its own, or is lost meanwhile. */
export async function openOnAllRanks<T>(
  membership: Membership,
  leftMs: () => number,
  signal: AbortSignal | undefined,
  { open, undo }: RankOpening<T>,
): Promise<T> {
  const over = new AbortController();
  const givenUp = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  const others = remoteFailure(membership, leftMs(), over.signal);
  const opening = open(givenUp);
  try {
    const opened = await Promise.race([opening, others]);
    const wait = { timeoutMs: leftMs(), signal: givenUp };
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

/** Rejects when another rank says that it failed, or is lost; else it is never heard of. */
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

/** The first failure counts; it is not waited for. */
function reportFailure(membership: Membership, error: unknown): void {
  const { code } = error as Partial<CommError>;
  const told: OpeningFailure = {
    rank: membership.rank,
    code,
    text: firstLine(error).slice(0, 1000),
  };
  const value = new TextEncoder().encode(JSON.stringify(told));
  membership.set(failureKey, value).catch(() => undefined);
}

function errorOf(value: Uint8Array, { rank: own, size, jobId, generation }: Membership): CommError {
  const { rank, code, text } = JSON.parse(new TextDecoder().decode(value)) as OpeningFailure;
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
