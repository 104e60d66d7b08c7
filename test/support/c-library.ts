/** Compiles a C file into a library for one test process, where there is a C compiler. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The compiler of this machine, or why there is none. */
export const compiler: { readonly command: string } | { readonly missing: string } = findCompiler();

function findCompiler(): typeof compiler {
  const wanted = process.env["CC"];
  const tried = wanted === undefined || wanted === "" ? ["cc", "gcc", "clang"] : [wanted];
  if (process.platform === "win32") return { missing: "the library is written for POSIX" };
  for (const command of tried) {
    if (spawnSync(command, ["--version"], { stdio: "ignore" }).status === 0) return { command };
  }
  return { missing: `no C compiler: tried ${tried.join(", ")}` };
}

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
