// Compares twinccl on this machine's GPUs with a native loop over the same NCCL and with torch.distributed, interleaved in
// one run:   npm run bench:gpu -- --help
// It runs from dist and needs no TypeScript. What cannot be measured is named with the reason.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { environment, environmentText, sizeText } from "twinccl/bench";
import { listOf, number, oneOf, options, output, whole } from "../tools/options.mjs";
import { compare, latencies, warm, warmAwaited } from "./gpu/compare.mjs";
import { cycles, ends, rendezvous } from "./gpu/endurance.mjs";
import { gpus } from "./gpu/found.mjs";
import { findLibraries } from "./gpu/libraries.mjs";
import { pinnedText, pinPeers } from "./gpu/pin.mjs";
import { latencyRows, rowsOf, simRow } from "./gpu/plan.mjs";
import { modelOf, modelText, predict } from "./gpu/predicted.mjs";
import { libraryName, withoutPaths } from "./gpu/provenance.mjs";
import { startPeers, subjectNames, variablesFor } from "./gpu/subjects.mjs";
import { notRunText, tableText } from "./gpu/table.mjs";

const named = subjectNames.join("; ");
const values = options({
  name: "bench:gpu",
  about: "Compares twinccl with NCCL itself and torch.distributed on this machine's GPUs.",
  options: {
    out: { is: output, help: "keeps all figures as JSON" },
    quick: { help: "fewer sizes, shorter" },
    seconds: {
      is: number(1),
      help: "for all of it, 400, or 270 with --quick: half for the comparison, most of the rest for 200 worlds opened and closed",
    },
    ranks: { is: whole(1), help: "number of ranks; as many as GPUs" },
    rounds: {
      is: whole(1),
      help: "of every size, before the time left goes to those known least well; 5, 3 with --quick",
    },
    // Names have commas in them.
    only: {
      is: listOf({ ...oneOf(...subjectNames), label: "PEER", needs: `one of ${named}` }, ";"),
      help: `of ${named}`,
    },
    "no-peers": { help: "leave out programs of other projects" },
  },
});
const { quick } = values;
const seconds = values.seconds ?? (quick ? 270 : 400);
const beganMs = performance.now();
/** The part of the time that is over, as a point on the clock. */
const until = (part) => beganMs + part * seconds * 1000;
const print = (text) => process.stdout.write(text);

/**
 * When each part ends, as a part of the time: the peers beside each other, the simulation, worlds opened and closed. 200
 * of those take two minutes; a quick run opens fewer.
 */
const partEnds = quick
  ? { compared: 0.66, simulated: 0.7, cycled: 0.85 }
  : { compared: 0.445, simulated: 0.473, cycled: 0.9 };

/** The pairs of subjects that are measured side by side, as closely as time allows. */
const pairs = [
  ["twinccl", "native"],
  ["koffi", "native"],
  ["twinccl, one process", "native, one process"],
];

const found = gpus();
const size = values.ranks ?? found.names.length;
const rounds = values.rounds ?? (quick ? 3 : 5);
const names = values.only ?? subjectNames;
if (size === 0) {
  process.stderr.write("bench:gpu: needs a GPU, nvidia-smi lists none\n");
  process.exit(2);
}
const libraries = findLibraries();
const env = variablesFor(libraries);
const folder = mkdtempSync(join(tmpdir(), "twinccl-bench-"));
const document = {
  ...environment(),
  date: new Date().toISOString(),
  gpus: found.names,
  driver: found.driver,
  ranks: size,
  timing: "measured",
};

/** The document as text, lists of numbers in one line; reasons of peers that were not run name files of this machine. */
function withoutPathsIn(value) {
  const clean = (_, each) => (typeof each === "string" ? withoutPaths(each) : each);
  const numbers = /\[\s+(-?[\d.]+(?:,\s+-?[\d.]+)*)\s+\]/g;
  const oneLine = (_, list) => `[${list.replace(/\s+/g, " ")}]`;
  return JSON.stringify(value, clean, 1).replace(numbers, oneLine);
}

/** Keeps what there is, so that a run that is cut short leaves its figures behind. */
function save() {
  if (values.out !== undefined) writeFileSync(values.out, `${withoutPathsIn(document)}\n`);
}

async function comparePeers() {
  print(`# starting ${names.join("; ")}\n`);
  const peers = await startPeers(names, { size, folder, env });
  for (const { name, hello, failure } of peers) {
    print(`# ${name}: ${failure ?? JSON.stringify(hello)}\n`);
  }
  document.peers = peers.map(({ name, hello, failure }) =>
    failure === undefined
      ? { name, ...hello, ...(hello.library && { library: libraryName(hello.library) }) }
      : { name, not_run: failure },
  );
  const used = new Set(document.peers.flatMap(({ library }) => library ?? []));
  print(used.size > 1 ? `# peers use DIFFERENT files of NCCL: ${[...used].join(", ")}\n` : "");
  const real = peers.filter(({ name, failure }) => name !== "sim" && failure === undefined);
  try {
    await warm(rowsOf(size, { quick }), real);
    await warmAwaited(latencyRows, real);
    document.pinned = pinPeers(real, size);
    print(`# main threads of the ranks: ${pinnedText(document.pinned)}\n`);
    document.latency = await latencies(latencyRows, real, quick ? 1 : 3);
    print(
      tableText(
        document.latency.map((row) => ({ ...row, collective: "awaited allReduce" })),
        names,
      ),
    );
    const onProgress = ({ round, rounds: all, at, row }) => {
      const seconds_ = ((performance.now() - beganMs) / 1000).toFixed(0);
      const what = `${row.collective} ${row.mode} ${sizeText(row.bytes)}`;
      if (at % 16 === 0)
        process.stderr.write(`${seconds_} s: round ${round + 1} of ${all}, ${what}\n`);
    };
    const { rows, not_predicted: why } = await predict(rowsOf(size, { quick }), size);
    document.predicted = why === undefined ? modelOf() : { not_run: why };
    const outcome = await compare(rows, real, {
      rounds,
      deadline: until(partEnds.compared),
      pairs,
      onProgress,
    });
    Object.assign(document, outcome);
    save();
    await compareSim(
      peers.find(({ name }) => name === "sim"),
      rows,
    );
  } finally {
    await Promise.all(peers.map((peer) => peer.quit()));
  }
  print(tableText(document.results, names));
  const { predicted } = document;
  const why = predicted.not_run;
  print(`# ${why === undefined ? modelText(predicted) : `not predicted: ${why}`}\n`);
  print(notRunText([...document.latency, ...document.results]));
}

/** The simulation computes on the CPU, so it is measured while no GPU is in use, and only up to a few megabytes. */
async function compareSim(peer, rows) {
  if (peer === undefined || peer.failure !== undefined) return;
  const small = rows.map((row) => simRow(row, size)).filter((row) => row !== undefined);
  const { results } = await compare(small, [peer], {
    rounds: 1,
    deadline: until(partEnds.simulated),
  });
  const mode = "simulated, in process";
  print(
    tableText(
      results.map((row) => ({ ...row, mode })),
      ["sim"],
    ),
  );
  document.simulated = results.map(({ collective, bytes, iterations, peers, predicted_us }) => ({
    ...{ collective, bytes, iterations, timing: mode, ...peers.sim, predicted_us },
  }));
}

/** Measurements without a peer: memory that stays behind, ends without closing, the rendezvous. */
async function endure() {
  const few = Math.min(2, size);
  const left = Math.max(5, (until(partEnds.cycled) - performance.now()) / 1000);
  const wanted = quick ? 40 : 200;
  document.cycles = await cycles({ size: few, cycles: wanted, seconds: left, libraries, env });
  print(`# open, use, close: ${JSON.stringify(document.cycles)}\n`);
  document.ends = await ends({ size: few, processes: quick ? 8 : 20, env });
  print(`# ends without close: ${JSON.stringify(document.ends)}\n`);
  const { text, out, not_run: reason } = await rendezvous({ folder, seconds: 30 });
  document.rendezvous =
    out === undefined
      ? { not_run: reason }
      : JSON.parse(readFileSync(out, "utf8")).benches.rendezvous;
  print(text ?? `# rendezvous was not run: ${reason}\n`);
}

print(
  `# ${environmentText(document)}\n# ${size} of ${found.names.join(", ")}; driver ${found.driver}\n`,
);
try {
  if (!values["no-peers"]) await comparePeers();
  if (values.only === undefined) await endure();
} finally {
  document.seconds = (performance.now() - beganMs) / 1000;
  save();
  rmSync(folder, { recursive: true, force: true });
}
print(`# ${document.seconds.toFixed(0)} s\n`);
const wrong = document.results?.some(({ peers }) =>
  Object.values(peers).some(({ right }) => right === false),
);
if (wrong) process.exitCode = 1;
