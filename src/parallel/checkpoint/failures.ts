/** Work that may fail on some ranks and must then fail on all, so that no rank continues alone. */

import { rankRows } from "../../api/error-text.ts";
import type { Communicator } from "../../api/index.ts";
import { factsOf } from "../argument-checks.ts";
import { CheckpointError } from "../errors.ts";
import { gatherTexts } from "../host-collectives.ts";

/** The failure of a rank, as the others receive it. */
interface FailureReport {
  readonly fault: string;
  readonly file?: string | undefined;
  readonly hint?: string | undefined;
}

/**
 * Runs this rank's part and returns every rank's text, by rank.
 *
 * @throws CheckpointError on all ranks when the part of any failed; the cause is this rank's own error.
 */
export async function onAllRanks(
  comm: Communicator,
  action: string,
  part: () => Promise<string>,
): Promise<string[]> {
  let cause: unknown;
  let ownReport: FailureReport | { readonly text: string };
  try {
    ownReport = { text: await part() };
  } catch (error) {
    [ownReport, cause] = [reportOf(error), causeOf(error)];
  }
  const all = (await gatherTexts(comm, JSON.stringify(ownReport))).map((text) => JSON.parse(text));
  const failed = (all as (typeof ownReport)[]).flatMap((each, rank) =>
    "fault" in each ? [{ rank, ...each }] : [],
  );
  if (failed.length > 0) throw failure(comm, action, failed, cause);
  return all.map(({ text }) => text as string);
}

/** Runs work of this rank alone; an error becomes a `CheckpointError`. */
export async function onThisRank<T>(
  comm: Communicator,
  action: string,
  act: () => Promise<T>,
): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw failure(comm, action, [{ rank: comm.rank, ...reportOf(error) }], causeOf(error));
  }
}

/** Runs work on a file; an error names it. */
export async function withFileName<T>(
  file: string,
  fault: string,
  hint: string,
  act: () => Promise<T>,
): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new FileFault(file, `${fault}: ${why}`, hint, error);
  }
}

/** A fault and its remedy. */
export class Fault extends Error {
  readonly hint: string;
  readonly file: string | undefined;

  constructor(text: string, hint: string, cause?: unknown, file?: string) {
    super(text, { cause });
    this.hint = hint;
    this.file = file;
  }
}

/** A fault of a file, by name. */
export class FileFault extends Fault {
  constructor(file: string, fault: string, hint: string, cause?: unknown) {
    super(`"${file}" ${fault}`, hint, cause, file);
  }
}

function reportOf(error: unknown): FailureReport {
  const fault = error instanceof Error ? error.message : String(error);
  return error instanceof Fault ? { fault, file: error.file, hint: error.hint } : { fault };
}

function causeOf(error: unknown): unknown {
  return error instanceof Fault ? (error.cause ?? error) : error;
}

function failure(
  comm: Communicator,
  action: string,
  failed: readonly (FailureReport & { readonly rank: number })[],
  cause: unknown,
): CheckpointError {
  const [first] = failed;
  return new CheckpointError(
    {
      headline: `${action}: ${first?.fault}`,
      table: rankRows(
        failed.map(({ rank: each, fault }) => ({
          rank: each,
          cells: [fault.split("\n")[0] ?? ""],
        })),
      ),
      hint: first?.hint,
    },
    { ...factsOf(comm), ranks: failed.map((each) => each.rank), file: first?.file, cause },
  );
}
