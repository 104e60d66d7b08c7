/** A user's program: a file that default-exports `async (comm) => result`. */
import type { Communicator } from "../api/index.ts";
import { UsageError } from "./context.ts";
import { importFile } from "./module-file.ts";

/** The exports of such a file. */
export type RankProgram = (comm: Communicator) => unknown;

/**
 * Loads the program of a file.
 *
 * @throws UsageError when there is no such file, it is no JavaScript, or it exports something else.
 */
export async function loadProgram(path: string | undefined): Promise<RankProgram> {
  if (path === undefined) throw new UsageError("name a file that default-exports a function");
  const { default: program } = await importFile(path);
  if (typeof program === "function") return program as RankProgram;
  throw new UsageError(
    `${path}: its default export is ${typeof program}, needs async (comm) => result`,
  );
}
