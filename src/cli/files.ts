/** Files that a command line names: read and written with errors that name the option and a remedy. */
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  realpathSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { OutputError, type TraceSink, UsageError } from "./context.ts";

/** Refuses a missing file, and a folder; an option may name it. */
export function assertFile(path: string, option?: string): void {
  const where = option === undefined ? "" : `${option}: `;
  let found: Stats | undefined;
  try {
    found = statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOTDIR") {
      throw new UsageError(`${where}${path} cannot be read: ${reasonOf(error)}`);
    }
  }
  if (found === undefined) throw new UsageError(`${where}there is no file ${path}`);
  if (found.isDirectory()) throw new UsageError(`${where}${path} is a folder; name a file in it`);
}

/** The text of a file, which an option may name. */
export function readText(path: string, option?: string): string {
  assertFile(path, option);
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const where = option === undefined ? "" : `${option}: `;
    throw new UsageError(`${where}${path} cannot be read: ${reasonOf(error)}`);
  }
}

/**
 * Checks the file of an option and returns the function that writes it. Unwritable paths are refused here, before any work is
 * lost. The function throws an `OutputError`, such as for a full disk.
 */
export function outputFile(
  option: string,
  path: string | undefined,
): ((text: string) => void) | undefined {
  if (path === undefined) return undefined;
  const folder = dirname(resolve(path));
  if (!statOf(folder)?.isDirectory()) {
    throw new UsageError(`${option} ${path}: there is no folder ${folder}; make it first`);
  }
  const attempt = <T>(action: () => T, Fault: typeof UsageError | typeof OutputError): T => {
    try {
      return action();
    } catch (error) {
      throw new Fault(`${option} ${path}: cannot be written: ${reasonOf(error)}`);
    }
  };
  const found = attempt(() => statSync(path, { throwIfNoEntry: false }), UsageError);
  if (found?.isDirectory())
    throw new UsageError(`${option} ${path}: is a folder; name a file in it`);
  attempt(() => assertWritable(path, found), UsageError);
  return (text) => attempt(() => writeFileSync(path, text), OutputError);
}

/** A file that an option, or a word of the command line, names. */
export interface NamedFile {
  readonly what: string;
  readonly path: string | undefined;
}

/** Refuses a file that is another one of the command line, also by another path: an output would overwrite it. */
export function refuseSameFile(
  option: string,
  path: string | undefined,
  others: readonly NamedFile[],
): void {
  for (const { what, path: other } of others) {
    if (path === undefined || other === undefined || !isSameFile(path, other)) continue;
    throw new UsageError(`${option} ${path}: is the same file as ${what}; name another one`);
  }
}

/** True for paths of one file; pipes and devices take several outputs. */
function isSameFile(a: string, b: string): boolean {
  const [one, other] = [a, b].map(statOf);
  if (one === undefined && other === undefined) return placeOf(a) === placeOf(b);
  return one?.isFile() === true && one.dev === other?.dev && one.ino === other.ino;
}

/** `undefined` where no file can be reached, also below a file or through a loop of links. */
function statOf(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}

/** The real path of a file that may not exist yet. */
function placeOf(path: string): string {
  const folder = dirname(resolve(path));
  return join(existsSync(folder) ? realpathSync(folder) : folder, basename(path));
}

/**
 * Opens a file for writing as a test, and changes nothing. Pipes and devices are skipped, because their readers would notice.
 */
function assertWritable(path: string, found: Stats | undefined): void {
  if (found !== undefined && !found.isFile()) return;
  closeSync(openSync(path, "a"));
  // Through a link the file that it names is made; the link stays.
  if (found === undefined) rmSync(realpathSync(path));
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A trace for its file: a Chrome trace for a `.json`, else text. */
export function traceText(trace: TraceSink, path: string | undefined): string {
  return path?.endsWith(".json") === true
    ? `${JSON.stringify(trace.toChrome())}\n`
    : trace.toText();
}
