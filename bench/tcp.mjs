// Processes over TCP beside Open MPI on this machine, interleaved round by round: all-reduces, skewed all-to-allvs, the latency of
// a small call, and memory. `npm run bench:tcp -- --help`.
//
// Open MPI is measured twice: over TCP as well, and by its own choice, which is shared memory on one machine.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { environment, environmentText } from "twinccl/bench";
import { listOf, options, output, whole } from "../tools/options.mjs";
import { buildPeer } from "./peers/build.mjs";
import { openMpi, overTcp, peerVersions } from "./peers/peers.mjs";
import { sizeText } from "./speed/gpu.mjs";

const values = options({
  name: "bench:tcp",
  about:
    "Measures tcp() beside Open MPI: float32 all-reduces, skewed all-to-allvs, a small awaited call; memory.",
  options: {
    out: {
      is: output,
      help: "keeps all figures as JSON; docs:speed FILE writes docs/benchmarks.md",
    },
    rounds: { is: whole(1), default: "3", help: "in which everything runs once" },
    processes: { is: listOf(whole(2)), default: "2,4,8", help: "ranks, one in each process" },
    sizes: {
      is: listOf(whole(8)),
      default: "8,512,4096,32768,262144,2097152,16777216,67108864",
      help: "bytes of an all-reduce; an all-to-allv has those from 1 MiB on",
    },
    latency: {
      is: whole(0),
      default: "10000",
      help: "awaited all-reduces of 4 KiB on 2 processes",
    },
  },
});
const { rounds } = values;

/** Those that run in turn: each gives the milliseconds of its calls, or a reason why there are none. */
function subjectsOf(folder) {
  const mpi = buildPeer("mpi-all-reduce", folder);
  return {
    twinccl: overTcp,
    "Open MPI, tcp": (collective, bytes, calls, ranks) =>
      openMpi(mpi, collective, bytes, calls, { ranks, args: ["--mca", "btl", "tcp,self"] }),
    "Open MPI, default": (collective, bytes, calls, ranks) =>
      openMpi(mpi, collective, bytes, calls, { ranks }),
  };
}

/** Calls that are measured, after those in which the runtime compiles and connections are made. */
function repeatsOf(bytes) {
  if (bytes <= 2 ** 16) return { warm: 1000, calls: 300 };
  return bytes <= 2 ** 22 ? { warm: 200, calls: 50 } : { warm: 8, calls: 8 };
}

/** Memory of a process beside its two buffers: more than a process with small calls has. */
function memoryOf(ranks) {
  const bytes = 64 * 2 ** 20;
  const [large, small] = [bytes, 8].map((each) => overTcp("memory", each, 10, ranks));
  const reason = large.reason ?? small.reason;
  if (reason !== undefined) return { ranks, bytes, skipped: reason };
  return { ranks, bytes, besideBytes: large.times[0] - small.times[0] - 2 * bytes };
}

function memoryText({ ranks, bytes, besideBytes, skipped }) {
  const found = skipped === undefined ? `${(besideBytes / 2 ** 20).toFixed(1)} MiB` : skipped;
  return `memory beside the buffers, ${ranks} x ${sizeText(bytes)}: ${found}\n`;
}

function rowsOf() {
  const rows = [];
  for (const ranks of values.processes) {
    for (const bytes of values.sizes) {
      rows.push({ collective: "allreduce", ranks, bytes, ...repeatsOf(bytes) });
    }
    for (const bytes of values.sizes.filter((each) => each >= 2 ** 20)) {
      rows.push({ collective: "alltoallv", ranks, bytes, ...repeatsOf(bytes) });
    }
  }
  if (values.latency === 0) return rows;
  const calls = { warm: 1000, calls: values.latency };
  return [...rows, { collective: "allreduce", ranks: 2, bytes: 4096, ...calls, isLatency: true }];
}

const at = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

/** The figures of a subject over all rounds. */
function figures({ times, medians, reason }, isLatency) {
  if (reason !== undefined) return { skipped: reason };
  const sorted = [...times].sort((a, b) => a - b);
  const found = { median: at(sorted, 0.5), least: sorted[0], most: sorted.at(-1), medians };
  return isLatency ? { ...found, p99: at(sorted, 0.99) } : found;
}

/** Measures a row with all subjects, in turn in each round. */
function measured(row, subjects) {
  const { collective, bytes, warm, calls, ranks, isLatency = false } = row;
  const found = Object.keys(subjects).map((name) => ({ name, times: [], medians: [] }));
  for (let round = 0; round < (isLatency ? 1 : rounds); round++) {
    for (const each of found) {
      if (each.reason !== undefined) continue;
      const { times, reason } = subjects[each.name](collective, bytes, warm + calls, ranks);
      each.reason = reason;
      if (reason !== undefined) continue;
      const kept = times.slice(warm).sort((a, b) => a - b);
      each.times.push(...kept);
      each.medians.push(at(kept, 0.5));
    }
  }
  const results = Object.fromEntries(found.map((each) => [each.name, figures(each, isLatency)]));
  return { collective, ranks, bytes, calls, ...(isLatency && { latency: true }), ms: results };
}

function rowText({ collective, ranks, bytes, latency, ms }) {
  const name = `${collective}, ${ranks} x ${sizeText(bytes)}${latency ? ", awaited" : ""}`;
  const cells = Object.entries(ms).map(([subject, { median, p99, most, skipped }]) => {
    if (skipped !== undefined) return `${subject}: skipped: ${skipped}`;
    const spread = latency ? ` (p99 ${p99.toFixed(4)}, worst ${most.toFixed(4)})` : "";
    return `${subject} ${median.toFixed(4)} ms${spread}`;
  });
  return `${name.padEnd(32)} ${cells.join("; ")}\n`;
}

const folder = mkdtempSync(join(tmpdir(), "twinccl-tcp-"));
try {
  const subjects = subjectsOf(folder);
  const peers = { mpi: peerVersions().mpi };
  const head = { ...environment(), date: new Date().toISOString(), peers, rounds };
  const load = loadavg()[0];
  process.stdout.write(
    `# ${environmentText(head)}; ${peers.mpi}; ${rounds} rounds; load ${load}\n`,
  );
  const memory = values.processes.map(memoryOf);
  for (const each of memory) process.stdout.write(memoryText(each));
  const rows = [];
  for (const row of rowsOf()) {
    const found = measured(row, subjects);
    rows.push(found);
    process.stdout.write(rowText(found));
    // A run that is interrupted keeps its rows.
    if (values.out !== undefined) {
      writeFileSync(values.out, `${JSON.stringify({ ...head, load, memory, rows }, null, 2)}\n`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
