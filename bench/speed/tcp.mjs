// A result of `npm run bench:tcp -- --out FILE` as a section of docs/benchmarks.md.
import { sizeText, table } from "./gpu.mjs";

/** Microseconds with three digits, or all of those before the point. */
function microseconds(ms) {
  const us = 1000 * ms;
  if (us >= 100) return Math.round(us).toLocaleString("en-US");
  return us.toFixed(us >= 10 ? 1 : 2);
}

function cell(found, text) {
  return found.skipped === undefined ? text(found) : `not run: ${found.skipped}`;
}

/** One table of each collective and number of processes; subjects are columns. */
function callsTable(rows) {
  const names = Object.keys(rows[0].ms);
  const lines = rows.map(({ collective, ranks, bytes, ms }) => [
    `${collective === "allreduce" ? "all-reduce" : "all-to-allv, skewed"}, ${ranks} x ${sizeText(bytes)}`,
    ...names.map((name) => cell(ms[name], ({ median }) => microseconds(median))),
  ]);
  return table(["microseconds a call", ...names], lines);
}

function latencyTable(rows) {
  if (rows.length === 0) return "";
  const lines = rows.flatMap(({ ranks, bytes, calls, ms }) =>
    Object.entries(ms).map(([name, found]) => [
      `${name}, ${ranks} x ${sizeText(bytes)}, ${calls.toLocaleString("en-US")} calls`,
      ...["median", "p99", "most"].map((figure) =>
        cell(found, (each) => microseconds(each[figure])),
      ),
    ]),
  );
  return `\n${table(["awaited all-reduce, microseconds", "median", "99th percentile", "worst"], lines)}`;
}

function memoryTable(memory) {
  const lines = memory.map(({ ranks, bytes, ...found }) => [
    `${ranks} x ${sizeText(bytes)}`,
    cell(found, ({ besideBytes }) => (besideBytes / 2 ** 20).toFixed(1)),
  ]);
  return `\n${table(["all-reduces, MiB of memory of a process beside its buffers", "most"], lines)}`;
}

/** The section of a result. */
export function tcpSection({ machine, versions, peers, commit, date, rounds, rows, memory }, path) {
  const facts = [
    `${machine.cpu}, ${machine.cores} cores`,
    `Node.js ${versions.node}`,
    peers.mpi.replace(/^.*\((.*)\)/, "$1"),
    `commit ${commit?.slice(0, 7) ?? "unknown"}`,
    date.slice(0, 10),
  ];
  const calls = rows.filter(({ latency }) => latency !== true);
  const awaited = rows.filter(({ latency }) => latency === true);
  return `## Speed between processes

${facts.join(", ")}. [\`tcp()\`](tcp.md) beside Open MPI, over TCP and by its own choice, which is shared memory on one machine.
Every call is awaited, until the slowest rank is done. ${rounds === 1 ? "One round" : `Medians of ${rounds} rounds`} in which all ran in turn. \`${path}\` holds the
spread; \`npm run bench:tcp -- --out FILE\` measures them again.

${callsTable(calls)}${latencyTable(awaited)}${memoryTable(memory)}`;
}
