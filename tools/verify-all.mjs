// Verifies every program of the catalogue for every rank count: `npm run verify:all` for 1..256,
// `npm run verify:all -- --to 64` for fewer, `-- --only allReduce` for one collective. Rooted ones
// are judged for every root up to 16 ranks, for the first, middle and last one beyond.

import { parseArgs } from "node:util";
import { build, isStale } from "./build.mjs";

const { values } = parseArgs({
  options: {
    from: { type: "string", default: "1" },
    to: { type: "string", default: "256" },
    only: { type: "string" },
  },
});
const from = Number(values.from);
const to = Number(values.to);
if (!(Number.isInteger(from) && Number.isInteger(to) && from >= 1 && to >= from)) {
  process.stderr.write(
    `verify-all: --from ${values.from} --to ${values.to} is no range of ranks\n`,
  );
  process.exit(2);
}
if (isStale() && !build()) {
  process.stderr.write("verify-all: the build failed, so nothing was verified\n");
  process.exit(1);
}
const { specifications } = await import("../dist/api/index.js");
const { algorithmsOf, builtCollectives, verifyAlgorithm } = await import(
  "../dist/algorithms/index.js"
);

/** Most ranks for which every root is judged. */
const allRootsUpTo = 16;
/** Problems printed in full. */
const mostPrinted = 20;

function rootsOf(collective, ranks) {
  if (!specifications[collective].rooted) return [-1];
  if (ranks > allRootsUpTo) return [0, ranks >> 1, ranks - 1];
  return Array.from({ length: ranks }, (_, root) => root);
}

function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

/** Verifies one algorithm for all rank counts and roots. */
function verifyRow(collective, algorithm) {
  const began = performance.now();
  const problems = [];
  let programs = 0;
  for (let ranks = from; ranks <= to; ranks += 1) {
    progress(`${collective} ${algorithm.name}: ${ranks} of ${to} ranks`);
    for (const root of rootsOf(collective, ranks)) {
      programs += 1;
      const at = `${collective} ${algorithm.name}, ${ranks} ranks${root < 0 ? "" : `, root ${root}`}`;
      for (const { pass, text } of verifyAlgorithm(collective, algorithm, ranks, root).problems) {
        problems.push(`${at}: ${pass}: ${text}`);
      }
    }
  }
  return { programs, problems, seconds: (performance.now() - began) / 1000 };
}

const collectives = builtCollectives.filter((name) => (values.only ?? name) === name);
if (collectives.length === 0) {
  process.stderr.write(`verify-all: --only ${values.only}: there is no such collective\n`);
  process.exit(2);
}
const line = (...cells) => {
  const [collective, algorithm, ...figures] = cells.map(String);
  const right = figures.map((figure) => figure.padStart(10)).join("");
  process.stdout.write(`${collective.padEnd(16)}${algorithm.padEnd(20)}${right}\n`);
};
const total = { programs: 0, problems: [], seconds: 0 };
line("collective", "algorithm", "programs", "problems", "seconds");
for (const collective of collectives) {
  for (const algorithm of algorithmsOf(collective)) {
    const { programs, problems, seconds } = verifyRow(collective, algorithm);
    progress("");
    line(collective, algorithm.name, programs, problems.length, seconds.toFixed(2));
    total.programs += programs;
    total.problems.push(...problems);
    total.seconds += seconds;
  }
}
line(
  "all",
  `${from}..${to} ranks`,
  total.programs,
  total.problems.length,
  total.seconds.toFixed(2),
);
for (const problem of total.problems.slice(0, mostPrinted)) process.stdout.write(`${problem}\n`);
process.exitCode = total.problems.length === 0 ? 0 : 1;
