// The measured times of NCCL in bench/results, as `fitProfile` of twinccl/algorithms takes them.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { machineProfiles } from "twinccl/algorithms";
import { calibrate } from "../../dist/bench/calibration/calibrate.js";
import { readResults } from "../../dist/bench/calibration/results.js";

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

const usualDtype = "float32";

/** The lines of nccl-tests. Its blocks are whole 16 bytes; a line without a block means nothing. */
function testsOf(text) {
  let section;
  return text.split("\n").flatMap((line) => {
    const [, name, ranks, choice] = /^## (\w+) n=(\d+) (.*)$/.exec(line) ?? [];
    if (name !== undefined) {
      const [algorithm, protocol] = choice.split(" ");
      const forced = choice === "default" ? undefined : { algorithm, protocol };
      const dtype = usualDtype;
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

/** Several processes jitter less than one for all GPUs, and one machine's figures more than the best round of many. */
const weightOf = ({ mode }) => (mode.processes === "one" ? 0.5 : 0.7);

const read = (name) => ({ name, text: readFileSync(join(results, name), "utf8") });

function comparisons() {
  return readdirSync(results)
    .filter((name) => /^gpu-h200x\d\.json$/.test(name))
    .sort()
    .map(read);
}

/** The comparisons on GPUs, by the times of this peer. */
const comparedTimes = (peer) => readResults(comparisons(), machineProfiles[machine], [peer]);

const comparedOf = (peer) =>
  comparedTimes(peer).measurements.map((each) => ({ ...each, weight: weightOf(each) }));

/** The only comparison in which awaited calls were measured once their code was compiled. */
const warmedFile = "gpu-h200x2.json";

/** The calls that decide twinccl's own part of an awaited one. */
const isOwnPart = ({ mode, source }) => mode.awaited && source === warmedFile;

/** Recorded calls at sizes that are no powers of two of which numbers come: on 2, 3 and 4 GPUs, and misaligned in symmetric memory on 2. */
export const fittedOddFiles = ["odd-sizes-h200x4.json", "misaligned-symmetric-h200x2.json"];

/**
 * The measurements that the profile is fitted to: of nccl-tests, of calls at odd sizes, of the C++ loop of the comparison, and awaited
 * calls of twinccl on two GPUs.
 */
export function fittedMeasurements() {
  const tests = testsOf(readFileSync(join(results, testsFile), "utf8"));
  const odd = fittedOddFiles.flatMap(oddSizes).map((each) => ({ ...each, weight: weightOf(each) }));
  const awaited = comparedOf("twinccl").filter(isOwnPart);
  return [...tests, ...odd, ...comparedOf("native"), ...awaited];
}

/** Measurements of the calls made by twinccl that no fit uses. */
export function unfittedMeasurements() {
  return comparedOf("twinccl").filter((each) => !isOwnPart(each));
}

/** The comparisons of which no fit uses anything, by machine. */
export const otherFiles = {
  "4 x H100": "gpu-h100x4.json",
  "2 x H200": "gpu-h200x2-later.json",
  "2 x fourth H200": "gpu-h200x2-fourth.json",
  "2 x fifth H200": "gpu-h200x2-fifth.json",
  "2 x sixth H200": "gpu-h200x2-sixth.json",
  "4 x H200": "gpu-h200x4-later.json",
};

/** The measurements of one of them, by the times of a peer. */
export function otherMeasurements(file, peer) {
  return readResults([read(file)], machineProfiles[machine], [peer]).measurements;
}

/** The calls of one of them that the comparisons of the fit hold too, each beside its time there, as residuals. */
export function repeatedMeasurements(file, peer) {
  const first = new Map(comparedTimes(peer).measurements.map((each) => [callOf(each), each.us]));
  return otherMeasurements(file, peer)
    .map((measurement) => ({ measurement, modelUs: first.get(callOf(measurement)) }))
    .filter(({ modelUs }) => modelUs !== undefined);
}

const callOf = ({ collective, ranks, count, dtype, forced, mode }) =>
  JSON.stringify([collective, ranks, count, dtype, forced, Object.entries(mode).sort()]);

/** Recorded calls at such sizes of which no fit uses anything, by GPU. */
export const oddSizesFiles = {
  "other H200": "odd-sizes-h200x4-later.json",
  "third H200": "odd-sizes-h200x2.json",
  "fourth H200": "cache-sizes-h200x2.json",
  H100: "odd-sizes-h100x4.json",
};

/** The calls of such a file. */
export function oddSizes(file) {
  const { runs } = JSON.parse(read(file).text);
  return runs.flatMap(({ ranks, rows }) =>
    rows.map(({ collective, count, dtype = usualDtype, memory, forced, us }) => {
      const [algorithm, protocol] = forced ?? [];
      const mode = { launch: "graph", memory, processes: "each", awaited: false };
      const found = { collective, ranks, count, dtype, mode, us, source: file, weight: 1 };
      return { ...found, forced: forced && { algorithm, protocol } };
    }),
  );
}

/** The calibration of another machine: with a process for each rank, and with one for all. */
export const calibrationFiles = ["calibration-h200x2-each.json", "calibration-h200x2-one.json"];

/** Calls of other sizes on that machine, right after it; each was measured in two runs. */
export const afterCalibrationFile = "sizes-after-calibration-h200x2.json";

/** The profile of these files by `twinccl calibrate`, and its residuals. */
export function calibrated() {
  const times = readResults(calibrationFiles.map(read), machineProfiles[machine]);
  const { nccl, date, commit } = times;
  const origin = { name: "calibrated", machine: "2 x NVIDIA H200", topology: machine };
  return calibrate(times, { ...origin, nccl, date, commit, sources: calibrationFiles });
}

/** The calls after the calibration, with the times of both runs. */
export function afterCalibration() {
  const { measurements } = readResults([read(afterCalibrationFile)], machineProfiles[machine]);
  const first = new Map();
  return measurements.flatMap((each) => {
    const call = callOf(each);
    if (first.has(call)) return [{ first: first.get(call), second: each }];
    first.set(call, each);
    return [];
  });
}

/** The fields of the machine's profile that no fit decides. */
export function profileOrigin() {
  const { nccl, date, commit } = comparedTimes("native");
  return {
    name: machine,
    machine: "8 x NVIDIA H200, NVSwitch",
    ...{ topology: machine, nccl, date, commit: commit.slice(0, 7) },
    sources: [testsFile, ...fittedOddFiles, ...comparisons().map(({ name }) => name)],
    mode: { launch: "graph", memory: "registered", processes: "each", awaited: false },
  };
}
