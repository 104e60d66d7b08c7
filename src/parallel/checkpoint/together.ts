/** Work that may fail on some ranks and must then fail on all, so that none goes on alone. */
import type { Communicator } from "../../api/index.ts";
import { allTexts } from "../agreement.ts";
import { CheckpointError } from "../errors.ts";

/** How a rank fared. */
type Outcome =
  | { readonly text: string }
  | { readonly fault: string; readonly file?: string; readonly hint?: string };

/**
 * Does this rank's part and gives every rank's text, by rank.
 *
 * @throws CheckpointError on all ranks when the part of any failed; the cause is this rank's own error.
 */
export async function together(
  comm: Communicator,
  action: string,
  part: () => Promise<string>,
): Promise<string[]> {
  let cause: unknown;
  let mine: Outcome;
  try {
    mine = { text: await part() };
  } catch (error) {
    cause = error;
    const fault = error instanceof Error ? error.message : String(error);
    mine = error instanceof FileFault ? { fault, file: error.file, hint: error.hint } : { fault };
  }
  const all = (await allTexts(comm, JSON.stringify(mine))).map(
    (text) => JSON.parse(text) as Outcome,
  );
  const failed = all.flatMap((outcome, rank) => ("fault" in outcome ? [{ rank, ...outcome }] : []));
  const first = failed[0];
  if (first === undefined) return all.map((outcome) => ("text" in outcome ? outcome.text : ""));
  const { rank, size, name } = comm;
  throw new CheckpointError(
    {
      headline: `${action}: ${first.fault}`,
      table: failed.map((each) => [`rank ${each.rank}`, each.fault.split("\n")[0] ?? ""]),
      hint: first.hint,
    },
    { rank, size, comm: name, ranks: failed.map((each) => each.rank), file: first.file, cause },
  );
}

/** Does something with a file; what goes wrong names it. */
export async function named<T>(file: string, fault: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new FileFault(file, `${fault}: ${why}`, "earlier saves are as they were", error);
  }
}

/** Something wrong with a file, by name. */
export class FileFault extends Error {
  readonly file: string;
  readonly hint: string;

  constructor(file: string, fault: string, hint: string, cause?: unknown) {
    super(`"${file}" ${fault}`, { cause });
    this.file = file;
    this.hint = hint;
  }
}
