// Compiles native/helper.c, where git ignores it: native/linux-x64/helper.so and native/linux-arm64/helper.so.
//   node tools/native.mjs          this machine's, where there is a C compiler; without one it prints why and is fine
//   node tools/native.mjs --all    both, for packing; without a compiler of one it prints which is missing and fails

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("../native/", import.meta.url));
const source = join(folder, "helper.c");
const here = `${process.platform}-${process.arch}`;

/** Compilers of other machines, by Debian's names. */
const crossCompilers = {
  "linux-x64": "x86_64-linux-gnu-gcc",
  "linux-arm64": "aarch64-linux-gnu-gcc",
};
const machines = Object.keys(crossCompilers);

const outputOf = (machine) => join(folder, machine, "helper.so");

/** Commands that may compile for a machine. */
function compilersFor(machine) {
  if (machine !== here) return [crossCompilers[machine]];
  return process.env.CC ? [process.env.CC] : ["cc", "gcc", "clang"];
}

/** The compiler for a machine; `undefined` without one. */
function compilerFor(machine) {
  return compilersFor(machine).find(
    (command) => spawnSync(command, ["--version"], { stdio: "ignore" }).status === 0,
  );
}

/** The compiler of this machine, or the reason for its absence. */
export function compilerHere() {
  const command = compilerFor(here);
  return command === undefined ? { missing: missingText(here) } : { command };
}

const missingText = (machine) => `there is no ${compilersFor(machine).join(" or ")}`;

/** Names of the compilers that packing needs and this machine lacks. */
export function missingCompilers() {
  const lacking = machines.filter((machine) => compilerFor(machine) === undefined);
  return lacking.map((machine) => compilersFor(machine).join(" or "));
}

/** Hash of the C file and of this one. */
function sourcesHash() {
  const hash = createHash("sha256");
  for (const path of [source, fileURLToPath(import.meta.url)]) hash.update(readFileSync(path));
  return hash.digest("hex");
}

const isMadeOf = (path, hash) => existsSync(path) && readFileSync(path).includes(hash);

/** True when this machine's helper is missing or made of other sources, and could be built. */
export function isHelperStale() {
  if (!machines.includes(here) || isMadeOf(outputOf(here), sourcesHash())) return false;
  return existsSync(outputOf(here)) || compilerFor(here) !== undefined;
}

/** Compiles for one machine, and returns the reason if that is impossible. */
function compile(machine, hash) {
  const output = outputOf(machine);
  if (isMadeOf(output, hash)) return undefined;
  const compiler = compilerFor(machine);
  if (compiler === undefined) return missingText(machine);
  mkdirSync(dirname(output), { recursive: true });
  // Put in its place at once: another process may be doing the same, or have it loaded.
  const fresh = `${output}.${process.pid}`;
  const flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"];
  const args = [...flags, `-DSOURCES="${hash}"`, "-o", fresh, source, "-lpthread"];
  const { status, stderr } = spawnSync(compiler, args, { encoding: "utf8" });
  if (status !== 0) {
    rmSync(fresh, { force: true });
    return `${compiler} failed: ${stderr.split("\n", 1)[0]}`;
  }
  renameSync(fresh, output);
  return undefined;
}

/** Builds the helper for these machines. Builds of other sources are removed, never packed nor loaded. Returns what failed. */
function buildFor(wanted) {
  const hash = sourcesHash();
  for (const machine of machines) {
    if (!isMadeOf(outputOf(machine), hash)) rmSync(outputOf(machine), { force: true });
  }
  return wanted.flatMap((machine) => {
    const reason = compile(machine, hash);
    return reason === undefined ? [] : [`native/${machine}/helper.so is not built: ${reason}`];
  });
}

/** Builds this machine's helper. Everything works without it, so a failure is one line of text. */
export function buildHelper() {
  const reasons = buildFor(machines.filter((machine) => machine === here));
  for (const reason of reasons) process.stderr.write(`${reason}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes("--all")) {
    const reasons = buildFor(machines);
    for (const reason of reasons) process.stderr.write(`${reason}\n`);
    if (reasons.length > 0) {
      const alone = "npm run build && npm pack --ignore-scripts";
      process.stderr.write(`to pack without what is missing: ${alone}\n`);
      process.exitCode = 1;
    }
  } else buildHelper();
}
