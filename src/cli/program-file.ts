/** A user's ES module, named on the command line: imported, checked and run with descriptive errors. */

import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { ranksText } from "../api/error-text.ts";
import type { Communicator } from "../api/index.ts";
import { worldError } from "../api/world/world-errors.ts";
import { type Context, UsageError } from "./context.ts";
import { assertFile } from "./files.ts";
import { closedPipeStatus } from "./output.ts";

/** The exports of a user's file. */
export type RankProgram = (comm: Communicator) => unknown;

/**
 * Loads the program of a file, which an option may name.
 *
 * @throws UsageError if the file is missing, is not JavaScript, or exports something else.
 */
export async function loadProgram(path: string, option?: string): Promise<RankProgram> {
  const { default: program } = await importFile(path, option);
  const isFunction = typeof program === "function";
  const isClass = isFunction && /^class\b/.test(Function.prototype.toString.call(program));
  if (isFunction && !isClass) return program as RankProgram;
  const where = option === undefined ? "" : `${option}: `;
  const found = isClass ? "a class" : typeof program;
  throw new UsageError(
    `${where}${path}: its default export is ${found}, needs async (comm) => result`,
  );
}

/**
 * Imports a file and returns its exports. `option` is the option that names it, if any.
 *
 * @throws UsageError if the file is missing, or Node cannot load it.
 */
export async function importFile(
  path: string,
  option?: string,
): Promise<Readonly<Record<string, unknown>>> {
  const before = option === undefined ? "" : `${option}: `;
  assertFile(path, option);
  const url = pathToFileURL(resolve(path)).href;
  // A file may end the process, or wait for ever: no code of the command runs behind that.
  const onExit = (status: number): void => {
    if (status === closedPipeStatus) return;
    process.exitCode = 1;
    process.stderr.write(`twinccl: ${before}${path}: the process ended before it was loaded\n`);
  };
  process.once("exit", onExit);
  try {
    return await import(url);
  } catch (error) {
    if (error instanceof SyntaxError && !isFromRunningCode(error)) {
      throw new UsageError(`${before}${syntaxText(path, url) ?? `${path}: ${error.message}`}`);
    }
    if (isUnloadable(error)) {
      const reason = `${error.message.split("\n")[0]}${typescriptHint(error)}`;
      throw new UsageError(`${before}${path}: ${reason}`);
    }
    throw error;
  } finally {
    process.removeListener("exit", onExit);
  }
}

/** The loader for a file that Node does not recognise as TypeScript. */
function typescriptHint({ message }: Error): string {
  return /^Unknown file extension "\.[cm]?tsx?"/.test(message) ? loaderHint : "";
}

const loaderHint = `
hint: Node.js ${process.versions.node} does not load it; .ts needs 22.18 or newer, or a loader:
      npm install --save-dev tsx, then NODE_OPTIONS="--import tsx" twinccl …`;

/** Refuses a script in TypeScript that other processes of this Node.js do not load. Options in the environment may bring a loader. */
export function assertLoadable(path: string): void {
  const { features, env } = process as {
    features: { typescript?: unknown };
    env: NodeJS.ProcessEnv;
  };
  const isLoaded = /\.[cm]?ts$/.test(path) ? Boolean(features.typescript) : !/\.tsx$/.test(path);
  if (isLoaded || (env["NODE_OPTIONS"] ?? "") !== "") return;
  throw new UsageError(`${path}: its types need a loader${loaderHint}`);
}

/** Node's errors for files that it cannot load: a missing import, an unknown extension. */
const unloadable = [
  "ERR_MODULE_NOT_FOUND",
  "ERR_UNKNOWN_FILE_EXTENSION",
  "ERR_IMPORT_ASSERTION_TYPE_MISSING",
  "ERR_IMPORT_ATTRIBUTE_MISSING",
];

function isUnloadable(error: unknown): error is Error {
  return error instanceof Error && "code" in error && unloadable.includes(String(error.code));
}

/** True if the error comes from code of a user's module, such as a failed `JSON.parse`. */
function isFromRunningCode({ stack = "" }: SyntaxError): boolean {
  const own = new URL(".", import.meta.url).href;
  return stack.split("\n").some((line) => /^\s+at .*file:/.test(line) && !line.includes(own));
}

/**
 * A syntax error with its file, its line and that line's text. Node prints these only when an error ends the process. A second
 * process therefore links the modules, without running them.
 */
function syntaxText(path: string, url: string): string | undefined {
  const args = ["--input-type=module", "--eval", `import ${JSON.stringify(url)};`];
  const { stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 10_000 });
  const [, file, line, source = ""] = /^(.+):(\d+)\n((?:.*\n)*?)\n?SyntaxError/m.exec(stderr) ?? [];
  const message = /^SyntaxError: (.*)$/m.exec(stderr)?.[1];
  if (file === undefined || message === undefined) return undefined;
  const isOwn = file === url || file === fileURLToPath(url);
  const shown = source.split("\n").filter((text) => text.trim() !== "");
  return [`${isOwn ? path : file}:${line}: ${message}`, ...shown.map((text) => `  ${text}`)].join(
    "\n",
  );
}

/** Runs the program on this process's rank. A failure counts as the program's, not as the command line's, as with all ranks in this process. */
export async function ofRank(comm: Communicator, program: RankProgram): Promise<unknown> {
  try {
    return await program(comm);
  } catch (error) {
    throw worldError(comm, [{ rank: comm.rank, error }]);
  }
}

/** Tracks the running ranks of a program. */
export type Watch = (program: RankProgram) => RankProgram;

/**
 * Loads and runs a user's program. If the process ends earlier, its status is 1, standard error names the running ranks, and
 * `onEnd` saves partial results. Without a reader of its output it ends without these words. All of this runs in the `exit` event and must be synchronous.
 */
export async function withExitReport<T>(
  command: string,
  { err }: Pick<Context, "err">,
  work: (watch: Watch) => Promise<T>,
  onEnd?: () => void,
): Promise<T> {
  const atWork = new Set<number>();
  const listener = (status: number): void => {
    if (status !== closedPipeStatus) {
      process.exitCode = 1;
      err(`twinccl ${command}: ${exitText(status, [...atWork])}\n`);
    }
    onEnd?.();
  };
  process.once("exit", listener);
  try {
    return await work((program) => watched(program, atWork));
  } finally {
    process.removeListener("exit", listener);
  }
}

/** The program, with its rank in `atWork` while it runs. */
function watched(program: RankProgram, atWork: Set<number>): RankProgram {
  return async (comm) => {
    atWork.add(comm.rank);
    try {
      return await program(comm);
    } finally {
      atWork.delete(comm.rank);
    }
  };
}

function exitText(status: number, atWork: readonly number[]): string {
  const ended = `the process ended with status ${status} before the run was over`;
  if (atWork.length === 0) return `${ended}: no rank was at work`;
  const ranks = ranksText(atWork.toSorted((a, b) => a - b));
  return `${ended}: ${ranks} had not returned\nhint: a rank ends by returning or throwing; look for process.exit(), and for a promise that nothing resolves`;
}
