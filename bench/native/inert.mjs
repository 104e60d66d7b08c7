// Builds inert.c, a libnccl and libcudart that do nothing, and gives its path. Throws where there is no C compiler.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the library goes away with the process. */
export function buildInert() {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-inert-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const library = join(folder, "libinert.so");
  const source = fileURLToPath(new URL("inert.c", import.meta.url));
  const flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter"];
  const command = process.env.CC || "cc";
  const { status, stderr, error } = spawnSync(command, [...flags, "-o", library, source], {
    encoding: "utf8",
  });
  if (error !== undefined) throw new Error(`no C compiler: ${command} cannot be started`);
  if (status !== 0) throw new Error(`${command} failed:\n${stderr}`);
  return library;
}
