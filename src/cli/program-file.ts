/** A user's program: a file that default-exports `async (comm) => result`. */
import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Communicator } from "../api/index.ts";
import { UsageError } from "./context.ts";

/** What such a file exports. */
export type RankProgram = (comm: Communicator) => unknown;

/**
 * Loads the program of a file.
 *
 * @throws UsageError when there is no such file, it is no JavaScript, or it exports something else.
 */
export async function loadProgram(path: string | undefined): Promise<RankProgram> {
  if (path === undefined) throw new UsageError("name a file that default-exports a function");
  const absolute = resolve(path);
  const status = statSync(absolute, { throwIfNoEntry: false });
  if (status === undefined) throw new UsageError(`there is no file ${path}`);
  if (status.isDirectory()) throw new UsageError(`${path} is a folder; name a file in it`);
  const module = await importProgram(path, pathToFileURL(absolute).href);
  if (typeof module.default === "function") return module.default as RankProgram;
  throw new UsageError(
    `${path}: its default export is ${typeof module.default}, needs async (comm) => result`,
  );
}

async function importProgram(path: string, url: string): Promise<{ default?: unknown }> {
  try {
    return await import(url);
  } catch (error) {
    if (error instanceof SyntaxError && !wasRunning(error)) {
      throw new UsageError(syntaxText(path, url) ?? `${path}: ${error.message}`);
    }
    if (isUnloadable(error)) throw new UsageError(`${path}: ${error.message.split("\n")[0]}`);
    throw error;
  }
}

/** Errors of Node about files that it cannot load: a missing import, an extension that is no JavaScript. */
const unloadable = [
  "ERR_MODULE_NOT_FOUND",
  "ERR_UNKNOWN_FILE_EXTENSION",
  "ERR_IMPORT_ASSERTION_TYPE_MISSING",
  "ERR_IMPORT_ATTRIBUTE_MISSING",
];

function isUnloadable(error: unknown): error is Error {
  return error instanceof Error && "code" in error && unloadable.includes(String(error.code));
}

/** True when some module's code was running, such as a `JSON.parse` that failed: nothing of ours, nothing of Node's. */
function wasRunning({ stack = "" }: SyntaxError): boolean {
  const own = new URL(".", import.meta.url).href;
  return stack.split("\n").some((line) => /^\s+at .*file:/.test(line) && !line.includes(own));
}

/**
 * A syntax error with its file, its line and that line's text. Node tells these only when it ends by the error, so
 * another one is made to link the modules; it runs none of them.
 */
function syntaxText(path: string, url: string): string | undefined {
  const args = ["--input-type=module", "--eval", `import ${JSON.stringify(url)};`];
  const { stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 10_000 });
  const [, file, line, source = ""] = /^(.+):(\d+)\n((?:.*\n)*?)\n?SyntaxError/m.exec(stderr) ?? [];
  const message = /^SyntaxError: (.*)$/m.exec(stderr)?.[1];
  if (file === undefined || message === undefined) return undefined;
  const isOwn = file === url || file === fileURLToPath(url);
  const shown = source.trimEnd().split("\n");
  return [`${isOwn ? path : file}:${line}: ${message}`, ...shown.map((text) => `  ${text}`)].join(
    "\n",
  );
}
