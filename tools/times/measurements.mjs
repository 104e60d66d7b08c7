// The measured times of NCCL in bench/results, as `fitProfile` of twinccl/algorithms takes them.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rowsOf } from "../../bench/gpu/plan.mjs";

const results = fileURLToPath(new URL("../../bench/results", import.meta.url));

/** The machine of the plans; its profile is fitted to the measurements. */
const machine = "h200x8";

const testsFile = `nccl-tests-${machine}.txt`;

const collectives = {
  all_reduce: "allReduce",
  all_gather: "allGather",
  reduce_scatter: "reduceScatter",
  alltoall: "allToAll",
  broadcast: "broadcast",
};

/** Collectives with a count that is the whole buffer's. */
const whole = new Set(["allReduce", "broadcast"]);

const dtype = "float32";

/** The lines of nccl-tests. Its blocks are whole 16 bytes; a line without a block means nothing. */
function testsOf(text) {
  let section;
  return text.split("\n").flatMap((line) => {
    const [, name, ranks, choice] = /^## (\w+) n=(\d+) (.*)$/.exec(line) ?? [];
    if (name !== undefined) {
      const [algorithm, protocol] = choice.split(" ");
      const forced = choice === "default" ? undefined : { algorithm, protocol };
      section = { collective: collectives[name], ranks: Number(ranks), dtype, forced };
    }
    const [, size, us] = /^(\d+) ([\d.]+)$/.exec(line) ?? [];
    if (size === undefined) return [];
    const elements = Number(size) / 4;
    const count = whole.has(section.collective)
      ? elements
      : 4 * Math.floor(elements / section.ranks / 4);
    if (count === 0) return [];
    const mode = { launch: "graph", memory: "registered", processes: "each", awaited: false };
    return [{ ...section, count, mode, us: Number(us), source: testsFile, weight: 1 }];
  });
}

/** The modes of the comparison on GPUs, by their names and those of the peers. */
function modeOf(mode, peer, awaited) {
  return {
    launch: mode.endsWith("graph") ? "graph" : "eager",
    memory: mode.startsWith("symmetric") ? "symmetric" : "ordinary",
    processes: peer.includes("one process") ? "one" : "each",
    awaited,
  };
}

/** Several processes jitter less than one for all GPUs, and one machine's figures more than the best round of many. */
const weightOf = (peer) => (peer.includes("one process") ? 0.5 : 0.7);

/** Rows of a comparison on GPUs, for the peers with these names. */
function comparedOf({ ranks, results: rows, latency }, source, peers) {
  const planned = rowsOf(ranks, { quick: false });
  const timesOf = (row, more, awaited) =>
    peers.flatMap((peer) => {
      const us = row.peers[peer]?.median_us;
      if (us === undefined) return [];
      const mode = modeOf(row.mode, peer, awaited);
      return [
        { ...more, ranks, dtype, mode, us, source: `${source}, ${peer}`, weight: weightOf(peer) },
      ];
    });
  const measured = rows.flatMap((row) => {
    const { collective, mode, bytes, count } = row;
    const { traffic } = planned.find(
      (each) => each.collective === collective && each.mode === mode && each.bytes === bytes,
    );
    const counts = traffic.length === 0 ? undefined : traffic;
    return timesOf(row, { collective, count, counts }, false);
  });
  const awaited = latency.flatMap((row) =>
    timesOf(row, { collective: "allReduce", count: row.bytes / 4 }, true),
  );
  return [...measured, ...awaited];
}

function documents() {
  return readdirSync(results)
    .filter((name) => /^gpu-h200x\d\.json$/.test(name))
    .sort()
    .map((name) => [name, JSON.parse(readFileSync(join(results, name), "utf8"))]);
}

/** The measurements that the profile is fitted to: of nccl-tests, and of the C++ loop of the comparison. */
export function fittedMeasurements() {
  return [
    ...testsOf(readFileSync(join(results, testsFile), "utf8")),
    ...documents().flatMap(([name, document]) =>
      comparedOf(document, name, ["native", "native, one process"]),
    ),
  ];
}

/** Measurements of the same calls made by twinccl, which no fit uses. */
export function unfittedMeasurements() {
  return documents().flatMap(([name, document]) =>
    comparedOf(document, name, ["twinccl", "twinccl, one process"]),
  );
}

/** The fields of the machine's profile that no fit decides. */
export function profileOrigin() {
  const [, { commit, date }] = documents().at(-1);
  return {
    name: machine,
    machine: "8 x NVIDIA H200, NVSwitch",
    topology: machine,
    nccl: "2.28.9",
    date: date.slice(0, 10),
    commit: commit.slice(0, 7),
    sources: [testsFile, ...documents().map(([name]) => name)],
    mode: { launch: "graph", memory: "registered", processes: "each", awaited: false },
  };
}
