// The programs of other people on this machine: each gives the milliseconds of its calls, or a reason why there are none.

import { spawnSync } from "node:child_process";

const ranks = 8;

/** Open MPI as root, and with more ranks than cores, as on the machines that CI and containers give. */
const mpi = ["--oversubscribe", "--allow-run-as-root", "-n", String(ranks)];

/** Milliseconds of so many copies of `bytes` bytes by `threads` threads. */
export function copies({ path, reason }, threads, buffers, bytes, runs) {
  if (path === undefined) return { reason };
  return times(path, [threads, buffers, bytes, runs].map(String));
}

/** Milliseconds of calls of Open MPI. */
export function openMpi({ path, reason }, collective, bytes, calls) {
  if (path === undefined) return { reason };
  return times("mpirun", [...mpi, path, collective, String(bytes), String(calls)]);
}

/** What the MPI library calls itself. */
export function mpiVersion() {
  const { stdout } = spawnSync("mpirun", ["--version"], { encoding: "utf8" });
  return stdout?.split("\n")[0] ?? "none";
}

function times(command, args) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: 120_000,
  });
  if (status !== 0) return { reason: `${command}: ${stderr.trim().split("\n")[0]}` };
  return { times: stdout.trim().split(" ").map(Number) };
}
