// Builds the C programs beside this file into a folder; says why one cannot be built here.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));

/** The programs, with what compiles and runs each of them. */
const programs = {
  "copy-probe": { compiler: "cc", flags: ["-O3", "-pthread"], needs: [] },
  "mpi-all-reduce": { compiler: "mpicc", flags: ["-O3"], needs: ["mpirun"] },
  "smpi-ring": { compiler: "smpicc", flags: ["-O3"], needs: ["smpirun"] },
};

function isThere(command) {
  // What it exits with differs: SimGrid's smpirun takes --version for a wrong call.
  return spawnSync(command, ["--version"], { stdio: "ignore" }).error === undefined;
}

/** The path of the program that was built, or why it was not. */
export function buildPeer(name, output) {
  const { compiler, flags, needs } = programs[name];
  const missing = [compiler, ...needs].find((command) => !isThere(command));
  if (missing !== undefined) return { reason: `${missing} was not found` };
  const path = join(output, name);
  const args = [...flags, join(folder, `${name}.c`), "-o", path];
  const { status, stderr } = spawnSync(compiler, args, { encoding: "utf8" });
  return status === 0 ? { path } : { reason: `${compiler}: ${stderr.trim().split("\n")[0]}` };
}
