/** A user's file: an ES module that a command line names, imported with errors that say what is wrong with it. */
import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { UsageError } from "./context.ts";

/**
 * Imports a file, and returns its exports. `option` is the one that named it, where one did.
 *
 * @throws UsageError when there is no such file, or Node cannot load it.
 */
export async function importFile(
  path: string,
  option?: string,
): Promise<Readonly<Record<string, unknown>>> {
  const before = option === undefined ? "" : `${option}: `;
  const absolute = resolve(path);
  const status = statSync(absolute, { throwIfNoEntry: false });
  if (status === undefined) throw new UsageError(`${before}there is no file ${path}`);
  if (status.isDirectory()) throw new UsageError(`${before}${path} is a folder; name a file in it`);
  const url = pathToFileURL(absolute).href;
  try {
    return await import(url);
  } catch (error) {
    if (error instanceof SyntaxError && !wasRunning(error)) {
      throw new UsageError(`${before}${syntaxText(path, url) ?? `${path}: ${error.message}`}`);
    }
    if (isUnloadable(error)) {
      const said = `${error.message.split("\n")[0]}${typescriptHint(error)}`;
      throw new UsageError(`${before}${path}: ${said}`);
    }
    throw error;
  }
}

/** The loader for a file that Node does not recognise as TypeScript. */
function typescriptHint({ message }: Error): string {
  if (!/^Unknown file extension "\.[cm]?tsx?"/.test(message)) return "";
  return `
hint: Node.js ${process.versions.node} does not load it; .ts needs 22.18 or newer, or a loader:
      npm install --save-dev tsx, then NODE_OPTIONS="--import tsx" twinccl …`;
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
 * A syntax error with its file, its line and that line's text. Node prints these only when it ends by the error, so
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
