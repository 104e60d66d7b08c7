// The programs of other people on this machine: each gives the milliseconds of its calls, or a reason why there are none.

import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Open MPI as root, and with more ranks than cores, as on the machines that CI and containers give. */
const mpi = ["--oversubscribe", "--allow-run-as-root"];

const pathOf = (name) => fileURLToPath(new URL(name, import.meta.url));
const [main, rank] = [pathOf("../../dist/cli/main.js"), pathOf("tcp-rank.mjs")];

/** Milliseconds of so many copies of `bytes` bytes by `threads` threads. */
export function copies({ path, reason }, threads, buffers, bytes, runs) {
  if (path === undefined) return { reason };
  return times(path, [threads, buffers, bytes, runs].map(String));
}

/** Milliseconds of calls of Open MPI; `args` are more arguments of mpirun. */
export function openMpi({ path, reason }, collective, bytes, calls, { ranks = 8, args = [] } = {}) {
  if (path === undefined) return { reason };
  const program = [path, collective, String(bytes), String(calls)];
  return times("mpirun", [...mpi, "-n", String(ranks), ...args, ...program]);
}

/** Milliseconds of calls of processes of twinccl over TCP; bytes of `memory`. */
export function overTcp(collective, bytes, calls, ranks) {
  const program = [rank, collective, String(bytes), String(calls)];
  return times(process.execPath, [main, "launch", "-n", String(ranks), "--", ...program]);
}

/** The machine that SMPI simulates: a crossbar with the ports that ours have. */
const platform = (size) => `<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="machine" prefix="rank-" suffix="" radical="0-${size - 1}" speed="1Gf" bw="50GBps" lat="1us"/>
</platform>
`;

/** Seconds that SimGrid's SMPI takes to simulate a ring all-reduce of so many bytes on so many ranks. */
export function smpiRing({ path, reason }, folder, size, bytes) {
  if (path === undefined) return { reason };
  const machine = join(folder, "platform.xml");
  writeFileSync(machine, platform(size));
  const quiet = ["--cfg=smpi/simulate-computation:no", "--log=root.thres:critical"];
  const began = performance.now();
  const args = ["-np", String(size), "-platform", machine, ...quiet, path, String(bytes)];
  const { reason: fault } = times("smpirun", args, 900_000);
  return fault === undefined ? { times: [(performance.now() - began) / 1000] } : { reason: fault };
}

/** The names of the peers, as far as they are installed. */
export function peerVersions() {
  const first = (command, args) => spawnSync(command, args, { encoding: "utf8" }).stdout;
  const simgrid = /SimGrid version (\S+)/.exec(first("smpirun", ["--version"]) ?? "");
  return {
    mpi: first("mpirun", ["--version"])?.split("\n")[0] ?? "none",
    simgrid: simgrid?.[1] ?? "none",
  };
}

function times(command, args, timeout = 120_000) {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8", timeout });
  if (status === null) return { reason: `${command}: took more than ${timeout / 1000} s` };
  if (status !== 0) return { reason: `${command}: ${stderr.trim().split("\n")[0]}` };
  // The launcher begins each line with its rank.
  return {
    times: stdout
      .replace(/^\[0\] /, "")
      .trim()
      .split(" ")
      .map(Number),
  };
}
