/** A user's program: a file that default-exports `async (comm) => result`. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Communicator } from "../api/index.ts";
import { UsageError } from "./context.ts";

/** What such a file exports. */
export type RankProgram = (comm: Communicator) => unknown;

/**
 * Loads the program of a file.
 *
 * @throws UsageError when there is no such file, or it exports something else.
 */
export async function loadProgram(path: string | undefined): Promise<RankProgram> {
  if (path === undefined) throw new UsageError("name a file that default-exports a function");
  const absolute = resolve(path);
  if (!existsSync(absolute)) throw new UsageError(`there is no file ${path}`);
  const module = (await import(pathToFileURL(absolute).href)) as { default?: unknown };
  if (typeof module.default === "function") return module.default as RankProgram;
  throw new UsageError(
    `${path}: its default export is ${typeof module.default}, needs async (comm) => result`,
  );
}
