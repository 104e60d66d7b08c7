// The simulation beside other people's programs on this machine, interleaved round by round: Open MPI, SimGrid's SMPI, a
// plain copy of as many bytes by two threads; and what it does at scale. `npm run bench:peers -- --help`.
//
// A ratio compares what ran in the same round, so that whatever else the machine does weighs on both.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { environment, environmentText } from "twinccl/bench";
import { options, output, plain, whole } from "../tools/options.mjs";
import { peerVersions } from "./peers/peers.mjs";
import { ratios, rowsOf } from "./peers/rows.mjs";

const values = options({
  name: "bench:peers",
  about: "Measures the simulation beside Open MPI, SimGrid's SMPI and a plain copy, and at scale.",
  options: {
    out: {
      is: output,
      help: "keeps all figures as JSON; docs:speed FILE writes docs/benchmarks.md",
    },
    rounds: { is: whole(1), default: "5", help: "in which everything runs once" },
    only: { is: plain("PART"), help: "only rows with this in their name; nothing else runs" },
  },
});
const { rounds, only } = values;

const median = (numbers) => {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
};

/** Runs all rows round by round; gives what was found of each, by name. */
async function measure(rows) {
  const found = new Map(
    rows.map((row) => [row.name, { ...row, times: [], medians: [], reason: undefined }]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const row of found.values()) {
      if (row.reason !== undefined || (row.once && round > 0)) continue;
      if (process.stderr.isTTY) {
        process.stderr.write(`\r\x1b[Kround ${round + 1} of ${rounds}: ${row.name}`);
      }
      const { times, reason } = await row.run(round);
      row.reason = reason;
      if (reason !== undefined) continue;
      row.times.push(...times);
      row.medians.push(median(times));
    }
  }
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  return found;
}

/** A row as it is kept. */
function kept({ name, unit = "ms", atMost, atLeast, times, reason }) {
  if (reason !== undefined) return { name, skipped: reason };
  const goal =
    atMost === undefined
      ? atLeast !== undefined && { at_least: atLeast, met: median(times) >= atLeast }
      : { at_most: atMost, met: median(times) <= atMost };
  return {
    name,
    unit,
    median: median(times),
    least: Math.min(...times),
    most: Math.max(...times),
    ...goal,
    times,
  };
}

function rowText({ name, unit, median: value, at_least, at_most, met, skipped }) {
  if (skipped !== undefined) return `${name.padEnd(60)} skipped: ${skipped}\n`;
  const goal = at_most ?? at_least;
  const aim =
    goal === undefined
      ? ""
      : `, goal ${at_most === undefined ? "at least" : "at most"} ${goal}: ${met ? "met" : "MISSED"}`;
  return `${name.padEnd(60)} ${value.toFixed(4)} ${unit}${aim}\n`;
}

/** The ratios of both names' rows, round by round; nothing where one of them was not measured. */
function compared(found, [name, peer, goal]) {
  const [own, other] = [found.get(name), found.get(peer)];
  if (own === undefined || other === undefined) return [];
  const rounds = Math.min(own.medians.length, other.medians.length);
  if (rounds === 0) return [];
  const each = own.medians.slice(0, rounds).map((time, round) => other.medians[round] / time);
  const value = median(each);
  const wanted = goal === undefined ? {} : { goal, met: value >= goal };
  return [{ name, peer, times_faster: value, ...wanted, each }];
}

function ratioText({ name, peer, times_faster, goal, met }) {
  const aim = goal === undefined ? "" : `, goal ${goal.toFixed(2)}: ${met ? "met" : "MISSED"}`;
  return `${name}: ${times_faster.toFixed(2)} x ${peer}${aim}\n`;
}

/** Measures the rows, and prints and keeps what was found. */
async function report(wanted) {
  const head = { ...environment(), date: new Date().toISOString(), peers: peerVersions(), rounds };
  const found = await measure(wanted);
  const rows = [...found.values()].map(kept);
  const ratiosFound = ratios.flatMap((pair) => compared(found, pair));
  const { mpi, simgrid } = head.peers;
  process.stdout.write(
    `# ${environmentText(head)}; ${mpi}; SimGrid ${simgrid}; ${rounds} rounds\n`,
  );
  for (const row of rows) process.stdout.write(rowText(row));
  for (const ratio of ratiosFound) process.stdout.write(ratioText(ratio));
  if (values.out !== undefined) {
    const document = { ...head, rows, ratios: ratiosFound };
    writeFileSync(values.out, `${JSON.stringify(document, null, 2)}\n`);
  }
}

const folder = mkdtempSync(join(tmpdir(), "twinccl-peers-"));
try {
  const every = rowsOf(folder);
  const wanted = every.filter(({ name }) => only === undefined || name.includes(only));
  if (wanted.length === 0) {
    const list = every.map(({ name }) => `  ${name}\n`).join("");
    process.stderr.write(
      `bench:peers: --only: found "${only}", needs a part of one of these names:\n${list}`,
    );
    process.exitCode = 2;
  } else await report(wanted);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
