/** The errors of a world: what a run, an abort or a lost rank looks like to the others. */
import type { CommInfo } from "../backend.ts";
import { hideOwnFrames, throwingPlace } from "../call-site.ts";
import {
  alignedTable,
  type ErrorText,
  firstLine,
  type Row,
  ranksText,
  sharedRows,
} from "../error-text.ts";
import {
  CommClosedError,
  CommError,
  type CommErrorFacts,
  DeadlockError,
  type RankFailure,
  RankLostError,
  RemoteRankError,
  WorldError,
} from "../errors.ts";
import { type Termination, terminationOf } from "../ledger/failures.ts";
import { invalid, textOf } from "../option-kinds.ts";

interface Named {
  readonly name: string;
  readonly size: number;
}

/** The remedy by the scope of an abort. */
const abortRemedies = {
  world: "open a new world, or rebuild this one",
  split: "its ranks' other communicators go on; split again to replace it",
  job: "this process is in the job no more: let it end",
} as const;

/** The scope of an abort: the world, one communicator of a split, or the part of this process in its job. */
export type AbortScope = keyof typeof abortRemedies;

/** The error of an aborted communicator. */
export function abortedError(
  name: string,
  reason: unknown,
  scope: AbortScope,
): { readonly text: ErrorText; readonly facts: CommErrorFacts } {
  const why = reasonText(reason);
  const headline = `the communicator "${name}" was aborted${why === "" ? "" : `: ${why}`}`;
  // A reason of this library has a table and a hint of its own, which its cause shows.
  const ranks = reason instanceof CommError ? reason.ranks : undefined;
  return { text: { headline, hint: abortRemedies[scope] }, facts: { cause: reason, ranks } };
}

/** The first line of what an abort was given, where it has a text: programs may give anything. */
function reasonText(reason: unknown): string {
  try {
    if (reason === undefined || reason === null || typeof reason === "function") return "";
    const { message } = reason as { readonly message?: unknown };
    const text = typeof message === "string" ? message : reason;
    const isPlain = typeof text === "object" && text.toString === Object.prototype.toString;
    return isPlain ? "" : (String(text).split("\n", 1)[0] as string);
  } catch {
    return "";
  }
}

/** The errors of the survivors' calls when the process of a rank is gone. */
export function lostErrors(comm: CommInfo, lost: number, reason: string): Termination {
  const headline = `the process of rank ${lost} is gone: ${reason}`;
  const hint = "comm.rebuild() continues with the survivors";
  return terminationOf(RankLostError, comm, { headline, hint }, { ranks: [lost] });
}

/** The errors of calls that a rank of another process makes no more: it has closed its end. */
export function closedElsewhereErrors(comm: CommInfo, closer: number): Termination {
  const headline = `rank ${closer} will not make it: it has closed its end of "${comm.name}"`;
  const hint =
    "every rank makes the same calls before it closes; comm.rebuild() continues with the ranks that call it too";
  return terminationOf(RemoteRankError, comm, { headline, hint }, { ranks: [closer] });
}

/** Reason of the abort of a communicator whose end another process has aborted. */
export function abortedElsewhereError(
  { name, ranks }: CommInfo,
  worldRank: number,
  why: string,
): RemoteRankError {
  const rank = ranks.indexOf(worldRank);
  return new RemoteRankError(
    {
      headline: `rank ${rank} has aborted it: ${why}`,
      hint: `its own output has the details; comm.rebuild() continues with the ranks that call it too`,
    },
    { size: ranks.length, comm: name, ranks: [rank] },
  );
}

/** Reason of the abort of a communicator whose other ranks have formed the next generation without this process. */
export function leftBehindError(
  { name, ranks }: CommInfo,
  wentOn: readonly number[],
): RemoteRankError {
  const others = ranks.flatMap((worldRank, rank) => (wentOn.includes(worldRank) ? [rank] : []));
  const who = others.length === 0 ? "the job" : ranksText(others);
  return new RemoteRankError(
    {
      headline: `${who} went on without this rank`,
      hint: "let this process end: a rank that others rebuild without, or that is too late for it, is in the job no more",
    },
    { size: ranks.length, comm: name, ranks: others },
  );
}

/** A rank that waits for something outside of the library that can no longer happen. */
export function neverReturnedError({ name, size }: Named, rank: number): DeadlockError {
  return new DeadlockError(
    {
      headline: `deadlock: rank ${rank} waits for something that can no longer happen, and never returned`,
      hint: "it awaits a promise that nothing resolves: no timer, I/O or call is left that could",
    },
    { rank, size, comm: name, ranks: [rank], waits: [{ rank, state: "waits", missing: [] }] },
  );
}

/** The errors of the other ranks' calls when a rank threw. */
export function remoteErrors({ name, size }: Named, thrower: number, cause: unknown): Termination {
  const headline = `rank ${thrower} threw: ${firstLine(cause)}`;
  const hint = "its error is the cause; the other ranks' open calls cannot complete";
  const facts = { ranks: [thrower], cause };
  return terminationOf(RemoteRankError, { comm: name, size }, { headline, hint }, facts);
}

/** The errors of calls that are open when their world is closed. */
export function closedWorldErrors({ name, size }: Named): Termination {
  const headline = `the world "${name}" was closed while a call was open`;
  return terminationOf(CommClosedError, { comm: name, size }, { headline }, {});
}

/** Ranks that stay when some are left out. */
export function survivorsOf(size: number, without: unknown): number[] {
  if (!Array.isArray(without)) {
    throw invalid("rebuild", "without", textOf(without), "an array of ranks");
  }
  for (const rank of without) {
    if (Number.isInteger(rank) && rank >= 0 && rank < size) continue;
    throw invalid("rebuild", "without", textOf(rank), `ranks in 0..${size - 1}`);
  }
  const survivors = Array.from({ length: size }, (_, rank) => rank).filter(
    (rank) => !without.includes(rank),
  );
  if (survivors.length > 0) return survivors;
  throw invalid("rebuild", "without", "all ranks", "at least one to stay");
}

/** The error of a run in which ranks failed, earliest first: ranks with the same text share a row, below the first are its details. */
export function worldError({ name, size }: Named, failures: readonly RankFailure[]): WorldError {
  const first = failures[0] as RankFailure;
  const rows = alignedTable(
    sharedRows(failures.map(({ rank, error }) => ({ rank, cells: failureCells(error) }))),
  );
  const { details, hint } = detailsOf(first.error);
  const error = new WorldError(
    {
      headline:
        failures.length === 1
          ? `rank ${first.rank} of ${size} failed on "${name}"`
          : `${failures.length} of ${size} ranks failed on "${name}", rank ${first.rank} first`,
      table: [...rows.slice(0, 1), ...details, ...rows.slice(1)].map((line) => [line]),
      hint: hint ?? "the first failure is the cause",
    },
    { size, comm: name, ranks: failures.map(({ rank }) => rank), failures, cause: first.error },
  );
  hideOwnFrames(error);
  return error;
}

/** True for an error of this library; programs may throw an object with a prototype that cannot be read. */
function isOwn(error: unknown): error is CommError {
  try {
    return error instanceof CommError;
  } catch {
    return false;
  }
}

/** The table and the hint of an error of this library; nothing of any other. */
function detailsOf(error: unknown): { details: readonly string[]; hint?: string | undefined } {
  if (!isOwn(error)) return { details: [] };
  const { message, hint } = error;
  const [, ...lines] = message.split("\n");
  return { details: hint === undefined ? lines : lines.slice(0, -hint.split("\n").length), hint };
}

/** The first line of a rank's failure; of an error that is not the library's also the line of the program that threw it. */
function failureCells(error: unknown): Row {
  const text = firstLine(error);
  try {
    if (!(error instanceof Error)) return [text];
    const line = `${String(error.name)}: ${text}`;
    const place = error instanceof CommError ? undefined : throwingPlace(error);
    return place === undefined ? [line] : [line, place];
  } catch {
    // Programs may throw an object with properties that throw themselves.
    return [text];
  }
}
