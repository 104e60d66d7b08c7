// Large and small calls of the simulation beside other people's programs on this machine, interleaved round by round:
// Open MPI, and a plain copy of as many bytes by two threads. `npm run bench:peers -- --help`.
//
// A ratio compares what ran in the same round, so that whatever else the machine does weighs on both.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { environment, environmentText } from "twinccl/bench";
import { options, plain, whole } from "../tools/options.mjs";
import { buildPeer } from "./peers/build.mjs";
import { copies, mpiVersion, openMpi } from "./peers/peers.mjs";
import { allReduces, allToAllvs, graphCalls, smallCalls } from "./peers/subjects.mjs";

const values = options({
  name: "bench:peers",
  about: "Measures the simulation beside Open MPI and a plain copy.",
  options: {
    out: { is: plain("FILE"), help: "keeps all figures as JSON" },
    rounds: { is: whole(1), default: "5", help: "in which everything runs once" },
  },
});
const { rounds } = values;
const bytes = 2 ** 26;
const calls = 3;

/** Every row of the table; `run` gives its samples of one round. */
function rowsOf(probe, mpi) {
  const large = (dtype) => () => allReduces(dtype, bytes, calls);
  return [
    { name: "copy of 8 x 64 MiB, two threads", run: () => copies(probe, 2, 8, bytes, calls) },
    {
      name: "Open MPI all-reduce, float32, 8 x 64 MiB",
      run: () => openMpi(mpi, "allreduce", bytes, calls),
    },
    { name: "all-reduce, float32, 8 x 64 MiB", run: large("float32") },
    { name: "all-reduce, bfloat16, 8 x 64 MiB", run: large("bfloat16") },
    { name: "all-reduce, float16, 8 x 64 MiB", run: large("float16") },
    { name: "all-reduce, int8, 8 x 64 MiB", run: large("int8") },
    {
      name: "Open MPI all-to-allv, skewed, 8 x 64 MiB",
      run: () => openMpi(mpi, "alltoallv", bytes, calls),
    },
    { name: "all-to-allv, skewed, 8 x 64 MiB", run: () => allToAllvs(bytes, calls) },
    {
      name: "Open MPI all-reduce, float32, 8 x 1 KiB",
      run: () => openMpi(mpi, "allreduce", 1024, 400),
    },
    { name: "all-reduce, float32, 8 x 1 KiB, awaited", run: () => smallCalls(20) },
    { name: "all-reduce, float32, 8 x 1 KiB, in a graph of 100", run: () => graphCalls(20) },
  ];
}

/** How many times faster one row is than another, and what is wanted. */
const ratios = [
  ["all-reduce, float32, 8 x 64 MiB", "Open MPI all-reduce, float32, 8 x 64 MiB", 3],
  ["all-reduce, float32, 8 x 64 MiB", "copy of 8 x 64 MiB, two threads", 0.8],
  ["all-reduce, bfloat16, 8 x 64 MiB", "copy of 8 x 64 MiB, two threads", 0.6],
  ["all-reduce, float16, 8 x 64 MiB", "copy of 8 x 64 MiB, two threads", 0.6],
  ["all-reduce, int8, 8 x 64 MiB", "copy of 8 x 64 MiB, two threads", 0.6],
  ["all-to-allv, skewed, 8 x 64 MiB", "copy of 8 x 64 MiB, two threads", 0.85],
  ["all-reduce, float32, 8 x 1 KiB, awaited", "Open MPI all-reduce, float32, 8 x 1 KiB", 29 / 8],
];

const median = (numbers) => {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
};

const folder = mkdtempSync(join(tmpdir(), "twinccl-peers-"));
try {
  const rows = rowsOf(buildPeer("copy-probe", folder), buildPeer("mpi-all-reduce", folder));
  const found = new Map(
    rows.map(({ name }) => [name, { times: [], medians: [], reason: undefined }]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const { name, run } of rows) {
      const row = found.get(name);
      if (row.reason !== undefined) continue;
      const { times, reason } = await run();
      row.reason = reason;
      if (reason !== undefined) continue;
      row.times.push(...times);
      row.medians.push(median(times));
    }
  }
  const head = environment();
  const document = { ...head, peers: { mpi: mpiVersion() }, rounds, rows: [], ratios: [] };
  process.stdout.write(`# ${environmentText(head)}; ${document.peers.mpi}; ${rounds} rounds\n`);
  for (const [name, { times, reason }] of found) {
    document.rows.push(
      reason === undefined
        ? {
            name,
            unit: "ms",
            median: median(times),
            least: Math.min(...times),
            most: Math.max(...times),
            times,
          }
        : { name, skipped: reason },
    );
    const text = reason === undefined ? `${median(times).toFixed(4)} ms` : `skipped: ${reason}`;
    process.stdout.write(`${name.padEnd(52)} ${text}\n`);
  }
  for (const [name, peer, goal] of ratios) {
    const { medians: own } = found.get(name);
    const { medians: other, reason } = found.get(peer);
    if (reason !== undefined) continue;
    const each = own.map((time, round) => other[round] / time);
    const value = median(each);
    document.ratios.push({ name, peer, times_faster: value, goal, met: value >= goal, each });
    const verdict = value >= goal ? "met" : "MISSED";
    process.stdout.write(
      `${name}: ${value.toFixed(2)} x ${peer}, goal ${goal.toFixed(2)}: ${verdict}\n`,
    );
  }
  if (values.out !== undefined) writeFileSync(values.out, `${JSON.stringify(document, null, 2)}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
