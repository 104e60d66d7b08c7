/** Files that a command line names: read and written with errors that say which option and what to do. */
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UsageError } from "./context.ts";

/** The text of a file. */
export function readText(path: string): string {
  if (!existsSync(path)) throw new UsageError(`there is no file ${path}`);
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${reasonOf(error)}`);
  }
}

/**
 * Prepares to write the file that an option names, and returns what writes it. Places that cannot be written to are
 * refused here, before the work whose result would be lost.
 */
export function outputFile(
  option: string,
  path: string | undefined,
): ((text: string) => void) | undefined {
  if (path === undefined) return undefined;
  const folder = dirname(resolve(path));
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) {
    throw new UsageError(`${option} ${path}: there is no folder ${folder}; make it first`);
  }
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) {
    throw new UsageError(`${option} ${path}: is a folder; name a file in it`);
  }
  return (text) => {
    try {
      writeFileSync(path, text);
    } catch (error) {
      throw new UsageError(`${option} ${path}: cannot be written: ${reasonOf(error)}`);
    }
  };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
