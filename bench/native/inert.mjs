// Builds inert.c, a libnccl and libcudart that do nothing, and has it leave empty caches. Throws where there is no C compiler.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import koffi from "koffi";
import { compilerHere } from "../../tools/native.mjs";

/** The folder of the library goes away with the process. */
export function buildInert() {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-inert-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const library = join(folder, "libinert.so");
  const source = fileURLToPath(new URL("inert.c", import.meta.url));
  const flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra"];
  const { command, missing } = compilerHere();
  if (command === undefined) throw new Error(missing);
  const { status, stderr } = spawnSync(command, [...flags, "-o", library, source], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`${command} failed:\n${stderr}`);
  return library;
}

/** Makes every launch of a built library read so much memory; gives a function that returns its time in microseconds. */
export function emptyingCaches(library, bytes) {
  const inert = koffi.load(library);
  if (inert.func("int inert_empty_caches(size_t bytes)")(bytes) !== 0) {
    throw new Error(`no memory: ${bytes} bytes`);
  }
  return inert.func("double inert_emptying_us()");
}
