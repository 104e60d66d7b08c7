/** Compiles a C file into a library for one test process, where there is a C compiler. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

type Compiler = { readonly command: string } | { readonly missing: string };

const nativeTool = new URL("../../tools/native.mjs", import.meta.url).href;
const { compilerHere } = (await import(nativeTool)) as { compilerHere: () => Compiler };

/** The compiler of this machine, or why there is none. */
export const compiler: Compiler =
  process.platform === "win32" ? { missing: "the library is written for POSIX" } : compilerHere();

let folder: string | undefined;

/** Compiles `source` and gives the library's path; the folder goes away with the process. */
export function compileLibrary(
  source: URL,
  name: string,
  defines: Readonly<Record<string, string | number>> = {},
): string {
  if (!("command" in compiler)) throw new Error(compiler.missing);
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), "twinccl-c-"));
    const made = folder;
    process.once("exit", () => rmSync(made, { recursive: true, force: true }));
  }
  const path = join(folder, name);
  const flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1"];
  const macros = Object.entries(defines).map(([macro, value]) => `-D${macro}=${value}`);
  const { status, stderr } = spawnSync(
    compiler.command,
    [
      ...flags,
      ...macros,
      "-fno-optimize-sibling-calls",
      "-o",
      path,
      fileURLToPath(source),
      "-lpthread",
    ],
    { encoding: "utf8" },
  );
  if (status !== 0) throw new Error(`${compiler.command} failed:\n${stderr}`);
  return path;
}
