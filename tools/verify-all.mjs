// Verifies every program of the catalogue for every rank count: npm run verify:all -- --help. Rooted ones are judged for
// every root up to 16 ranks, for the first, middle and last one beyond. Every core judges rank counts of its own.

import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { build, isStale } from "./build.mjs";
import { options, output, plain, whole } from "./options.mjs";

/** Most ranks for which every root is judged. */
const allRootsUpTo = 16;
/** Problems printed in full. */
const maxPrinted = 20;

if (isMainThread) await main();
else await work(workerData);

function parsedOptions() {
  const { from, to, threads, only, out } = options({
    name: "verify:all",
    about:
      "Verifies every program of the catalogue for every number of ranks; collectives that differ in name alone share it.",
    options: {
      from: { is: whole(1), default: "1", help: "the first number of ranks" },
      to: { is: whole(1), default: "256", help: "the last one" },
      only: { is: plain("NAME"), help: "one collective, such as allReduce" },
      threads: { is: whole(1), default: String(availableParallelism()), help: "of this process" },
      out: { is: output, help: "keeps what was found as JSON" },
    },
  });
  if (from <= to) return { from, to, threads, only, out };
  process.stderr.write(`verify:all: --from ${from} --to ${to}: needs a range of ranks\n`);
  return process.exit(2);
}

/** The rows of the catalogue, by the names of collective and algorithm. */
async function rowsOf(only) {
  const { algorithmsOf, builtCollectives } = await import("../dist/algorithms/index.js");
  return builtCollectives
    .filter((collective) => (only ?? collective) === collective)
    .flatMap((collective) =>
      algorithmsOf(collective).map((algorithm) => ({ collective, algorithm })),
    );
}

/**
 * True for collectives that differ in name alone: the v-forms of some have blocks of other lengths, which is no matter of their
 * programs. The same program of the same meaning is judged once.
 */
function meanTheSame(one, other) {
  return Object.keys({ ...one, ...other }).every(
    (key) => key === "collective" || one[key] === other[key],
  );
}

/** A thread: verifies the rank counts that it is sent for every row, and says what it found. */
async function work({ only }) {
  const { specifications } = await import("../dist/api/index.js");
  const { verifyAlgorithm } = await import("../dist/algorithms/index.js");
  const rows = await rowsOf(only);
  const rootsOf = (collective, ranks) => {
    if (!specifications[collective].rooted) return [-1];
    if (ranks > allRootsUpTo) return [0, ranks >> 1, ranks - 1];
    return Array.from({ length: ranks }, (_, root) => root);
  };
  parentPort.on("message", (ranks) => {
    const judged = [];
    const found = rows.map(({ collective, algorithm }) => {
      const began = performance.now();
      const specification = specifications[collective];
      const same = judged.find(
        (row) => row.algorithm === algorithm && meanTheSame(row.specification, specification),
      );
      if (same !== undefined) return { ...same.row, problems: [], seconds: 0 };
      const problems = [];
      const roots = rootsOf(collective, ranks);
      for (const root of roots) {
        const at = `${collective} ${algorithm.name}, ${ranks} ranks${root < 0 ? "" : `, root ${root}`}`;
        for (const { pass, text } of verifyAlgorithm(collective, algorithm, ranks, root).problems) {
          problems.push(`${at}: ${pass}: ${text}`);
        }
      }
      const row = {
        programs: roots.length,
        problems,
        seconds: (performance.now() - began) / 1000,
      };
      judged.push({ algorithm, specification, row });
      return row;
    });
    parentPort.postMessage({ ranks, found });
  });
}

/** Hands every rank count, the largest first, to whichever thread is free; gives the findings by rank count. */
function shareOut({ from, to, threads, only }) {
  const findings = new Map();
  let next = to;
  return new Promise((resolve, reject) => {
    const total = to - from + 1;
    let running = Math.min(threads, total);
    for (let thread = running; thread > 0; thread -= 1) {
      const worker = new Worker(fileURLToPath(import.meta.url), {
        workerData: { only },
        // Young values die young: fewer, larger collections.
        resourceLimits: { maxYoungGenerationSizeMb: 128 },
      });
      const give = () => {
        if (next >= from) {
          worker.postMessage(next);
          next -= 1;
          return;
        }
        worker.terminate();
        running -= 1;
        if (running === 0) resolve(findings);
      };
      worker.on("error", reject);
      worker.on("message", ({ ranks, found }) => {
        findings.set(ranks, found);
        if (process.stderr.isTTY)
          process.stderr.write(`\r\x1b[K${findings.size} of ${total} rank counts`);
        give();
      });
      give();
    }
  });
}

async function main() {
  const given = parsedOptions();
  const { from, to, only, out } = given;
  if (isStale() && !build()) {
    process.stderr.write("verify:all: the build failed, so nothing was verified\n");
    process.exit(1);
  }
  const rows = await rowsOf(only);
  if (rows.length === 0) {
    process.stderr.write(`verify:all: --only ${only}: there is no such collective\n`);
    process.exit(2);
  }
  const began = performance.now();
  const findings = await shareOut(given);
  const wall = (performance.now() - began) / 1000;
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  const line = (...cells) => {
    const [collective, algorithm, ...figures] = cells.map(String);
    const right = figures.map((figure) => figure.padStart(10)).join("");
    process.stdout.write(`${collective.padEnd(16)}${algorithm.padEnd(20)}${right}\n`);
  };
  line("collective", "algorithm", "programs", "problems", "seconds");
  const total = { programs: 0, problems: [] };
  const kept = [];
  rows.forEach(({ collective, algorithm }, row) => {
    const sum = { programs: 0, problems: [], seconds: 0 };
    for (let ranks = from; ranks <= to; ranks += 1) {
      const { programs, problems, seconds } = findings.get(ranks)[row];
      sum.programs += programs;
      sum.problems.push(...problems);
      sum.seconds += seconds;
    }
    line(collective, algorithm.name, sum.programs, sum.problems.length, sum.seconds.toFixed(2));
    kept.push({ collective, algorithm: algorithm.name, ...sum });
    total.programs += sum.programs;
    total.problems.push(...sum.problems);
  });
  line("all", `${from}..${to} ranks`, total.programs, total.problems.length, wall.toFixed(2));
  if (out !== undefined) {
    const document = { from, to, seconds: wall, ...total, rows: kept };
    writeFileSync(out, `${JSON.stringify(document, null, 2)}\n`);
  }
  for (const problem of total.problems.slice(0, maxPrinted)) process.stdout.write(`${problem}\n`);
  process.exitCode = total.problems.length === 0 ? 0 : 1;
}
