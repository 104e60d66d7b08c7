/** Measured times of NCCL in files of results: `twinccl bench --json`, `bench --calibration`, and `npm run bench:gpu`. */
import {
  type CallMode,
  choiceOf,
  type MachineProfile,
  type Measurement,
  testedBytes,
} from "../../algorithms/index.ts";
import { isDay } from "../../algorithms/nccl/times/profile-file.ts";
import { dtypes, InvalidArgumentError, namedReduceOps, UnsupportedError } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { heaviestRank, skewedTraffic, type TrafficMatrix } from "../traffic.ts";
import { Fields } from "./fields.ts";

/** A file of results. */
export interface ResultsFile {
  readonly name: string;
  readonly text: string;
}

/** The content of files of results together. */
export interface MeasuredTimes {
  readonly nccl: string;
  /** Names of the GPUs, of the largest world. */
  readonly gpus: readonly string[];
  readonly commit: string;
  /** Day of the measurements of that file. */
  readonly date: string;
  readonly measurements: readonly Measurement[];
  /** Collectives without a time model, and the number of their rows. */
  readonly skipped: ReadonlyMap<string, number>;
}

/** Collectives that a row of `twinccl bench` gives every argument of, and those of the comparison on GPUs. */
const timed = [
  ...(["allReduce", "reduceScatter", "allGather", "broadcast", "reduce"] as const),
  ...(["allToAll", "gather", "scatter", "sendRecv"] as const),
] as const;
const compared = [...timed, "allToAllv"] as const;

/** The version with the kernels of the time model. */
const knownNccl = /^2\.28(\.\d{1,2})?$/;

/** GPUs of a machine with known plans. */
const mostRanks = 8;

/** GPUs with the links and channels of the known plans. */
const knownGpus = /\bH(100|200)\b(?!.*(PCIe|NVL))/;

/** Times of one call may differ so much between files; more is a contradiction. */
const mostRatio = 3;

/** The facts that all files must agree on. */
interface Facts {
  readonly nccl: string;
  readonly gpus: readonly string[];
  readonly commit: string;
  readonly date: string;
}

/**
 * Reads files of results. `usual` gives NCCL's choice for a call; a row with another one was forced. Of a comparison on GPUs
 * the times of the first of the `peers` that ran are read: NCCL's own loop before twinccl.
 *
 * @throws InvalidArgumentError that names the file, the field and the found value. UnsupportedError for a version of NCCL or GPUs
 * without known plans.
 */
export function readResults(
  files: readonly ResultsFile[],
  usual: MachineProfile,
  peers: readonly string[] = ["native", "twinccl"],
): MeasuredTimes {
  const measurements: Measurement[] = [];
  const skipped = new Map<string, number>();
  let known: (Facts & { readonly file: string }) | undefined;
  for (const { name, text } of files) {
    const document = new Fields(name, parsed(name, text));
    const isComparison = document.get("peers") !== undefined;
    if (!isComparison) for (const run of runsOf(document)) assertMeasured(run);
    const facts = isComparison ? comparisonFacts(document) : benchFacts(document);
    if (known !== undefined && known.nccl !== facts.nccl) {
      throw document.fault("nccl", `that of ${known.file}, ${known.nccl}`);
    }
    const [gpu] = facts.gpus;
    if (known !== undefined && known.gpus[0] !== gpu) {
      throw invalid(name, "gpus", textOf(gpu), `those of ${known.file}, ${textOf(known.gpus[0])}`);
    }
    if (known === undefined || known.gpus.length < facts.gpus.length)
      known = { ...facts, file: name };
    const rows = new Rows(skipped, usual);
    if (isComparison) readComparison(document, rows, peers);
    else for (const run of runsOf(document)) readBench(run, rows);
    measurements.push(...rows.found);
  }
  if (known === undefined)
    throw new InvalidArgumentError({ headline: "calibrate: no file of results" });
  refuseContradictions(measurements);
  const { nccl, gpus, commit, date } = known;
  return { nccl, gpus, commit, date, measurements, skipped };
}

function parsed(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InvalidArgumentError(
      {
        headline: `${file}: no JSON: ${(error as Error).message}`,
        hint: "twinccl bench --backend nccl --json writes results",
      },
      { field: "results", cause: error },
    );
  }
}

/** The measurements of a file. */
class Rows {
  readonly found: Measurement[] = [];
  readonly #skipped: Map<string, number>;
  readonly #usual: MachineProfile;

  constructor(skipped: Map<string, number>, usual: MachineProfile) {
    this.#skipped = skipped;
    this.#usual = usual;
  }

  /** The collective of a row; `undefined` for one that is not among the known ones, which is counted. */
  collective<T extends string>(row: Fields, known: readonly T[]): T | undefined {
    const name = row.text("collective");
    const found = known.find((each) => each === name);
    if (found === undefined) this.#skipped.set(name, (this.#skipped.get(name) ?? 0) + 1);
    return found;
  }

  add(measurement: Measurement): void {
    // A call of one rank, or of no elements, moves nothing between GPUs.
    if (choiceOf(this.#usual, measurement) !== undefined) this.found.push(measurement);
  }

  /** The forced algorithm and protocol of a row with another choice than NCCL's default. */
  forced(row: Fields, measurement: Measurement): Measurement["forced"] {
    const { collective, mode } = measurement;
    const isPlanned = !["allToAll", "gather", "scatter", "sendRecv"].includes(collective);
    const choice = choiceOf(this.#usual, measurement)?.name;
    if (!isPlanned || mode.memory === "symmetric" || choice === undefined) return undefined;
    const name = row.text("algorithm");
    if (name === choice) return undefined;
    const [, algorithm, protocol] = /^(Ring|Tree) (LL|LL128|Simple)$/.exec(name) ?? [];
    if (protocol === undefined) {
      throw row.fault("algorithm", `a choice of NCCL on ${this.#usual.topology}, here ${choice}`);
    }
    return { algorithm, protocol } as Measurement["forced"];
  }
}

function checkedFacts(document: Fields, field: string, facts: Facts): Facts {
  if (!knownNccl.test(facts.nccl)) throw unsupported(document, field, facts.nccl, "NCCL 2.28");
  const [first] = facts.gpus;
  if (first === undefined) throw document.fault("gpus", "the name of at least one GPU");
  facts.gpus.forEach((gpu, i) => {
    const field = `gpus[${i}]`;
    if (!knownGpus.test(gpu)) {
      throw unsupported(document, field, gpu, "H100 or H200 behind NVSwitch");
    }
    if (gpu === first) return;
    throw invalid(document.file, field, textOf(gpu), `that of gpus[0], ${textOf(first)}`);
  });
  return facts;
}

function unsupported(
  document: Fields,
  field: string,
  found: string,
  needs: string,
): UnsupportedError {
  return new UnsupportedError(
    {
      headline: `${document.file}: ${field}: found ${textOf(found)}, times are modelled for ${needs}`,
      hint: "plans of other versions and machines are not known, so that no formula holds for them",
    },
    { field },
  );
}

/** Facts of `twinccl bench --json`. */
function benchFacts(document: Fields): Facts {
  const commit = document.get("commit");
  const facts = {
    nccl: document.text("nccl"),
    gpus: document.texts("gpus"),
    commit: typeof commit === "string" ? commit : "",
    date: dayOf(document),
  };
  return checkedFacts(document, "nccl", facts);
}

/** Facts of `npm run bench:gpu`: peers name the code of the version that they loaded. */
function comparisonFacts(document: Fields): Facts {
  const peers = document.objects("peers");
  const peer = peers.find((each) => each.get("nccl") !== undefined);
  if (peer === undefined) throw document.fault("peers", "one that names its version of NCCL");
  const code = peer.whole("nccl", 1);
  const nccl = `${Math.floor(code / 10_000)}.${Math.floor(code / 100) % 100}.${code % 100}`;
  const [gpus, commit] = [document.texts("gpus"), document.text("commit")];
  return checkedFacts(document, peer.pathOf("nccl"), { nccl, gpus, commit, date: dayOf(document) });
}

function dayOf(document: Fields): string {
  const day = document.text("date").slice(0, 10);
  if (isDay(day)) return day;
  throw document.fault("date", "a day such as 2026-11-22");
}

/** The sweeps of a document: a calibration has several. */
function runsOf(document: Fields): readonly Fields[] {
  return document.get("runs") === undefined ? [document] : document.objects("runs");
}

/** Refuses simulated times: their documents have no version of NCCL and no GPUs either. */
function assertMeasured(run: Fields): void {
  if (run.text("timing") === "measured") return;
  throw run.fault("timing", "measured times", "measure with twinccl bench --backend nccl");
}

/** Rows of `twinccl bench --json`. */
function readBench(run: Fields, rows: Rows): void {
  const mode: CallMode = {
    launch: run.word("mode", ["eager", "graph"]),
    memory: run.flag("symmetric") ? "symmetric" : "ordinary",
    processes: run.whole("processes", 1) > 1 ? "each" : "one",
    awaited: run.flag("latency"),
  };
  for (const row of run.objects("results")) {
    if (row.text("backend") !== "nccl") throw row.fault("backend", "nccl");
    const collective = rows.collective(row, timed);
    if (collective === undefined) continue;
    const ranks = row.whole("ranks", 1, mostRanks);
    const call = {
      ...{ collective, mode, source: run.file, ranks },
      count: row.whole("count", 0),
      dtype: row.word("type", dtypes),
      op: row.get("redop") === "none" ? undefined : row.word("redop", namedReduceOps),
      root: Math.max(0, row.whole("root", -1, ranks - 1)),
    };
    const bytes = testedBytes(call);
    if (row.whole("size", 0) !== bytes) {
      throw row.fault("size", `${bytes}, which ${call.count} elements of ${call.ranks} ranks are`);
    }
    if (bytes === 0) continue;
    const us = timeOfRow(row.object("out_of_place"), bytes);
    const measurement = { ...call, us };
    rows.add({ ...measurement, forced: rows.forced(row, measurement) });
  }
}

/** The time of a row with a right result. */
function timeOfRow(placement: Fields, bytes: number): number {
  const us = placement.positive("time");
  const wrong = placement.get("nwrong");
  if (wrong !== null && wrong !== 0)
    throw placement.fault("nwrong", "0: wrong results have no time");
  const rate = placement.positive("alg_bw");
  if (Math.abs((rate * us * 1000) / bytes - 1) > 0.01) {
    const needs = `${(bytes / us / 1000).toPrecision(4)}, which ${bytes} bytes in ${us} µs are`;
    throw placement.fault("alg_bw", needs);
  }
  return us;
}

/** Rows of `npm run bench:gpu`, by the first of these peers that ran; one process for all ranks is a peer of its own. */
function readComparison(document: Fields, rows: Rows, peers: readonly string[]): void {
  const ranks = document.whole("ranks", 1, mostRanks);
  const dtype = "float32";
  type Call = Pick<Measurement, "collective" | "count" | "counts">;
  const add = (row: Fields, call: Call, awaited: boolean): void => {
    const issue = row.word("mode", ["eager", "graph", "symmetric", "symmetric+graph"]);
    const found = row.object("peers");
    for (const processes of ["each", "one"] as const) {
      const suffix = processes === "one" ? ", one process" : "";
      const name = peers.map((peer) => `${peer}${suffix}`).find((each) => hasTime(found, each));
      if (name === undefined) continue;
      const mode: CallMode = {
        launch: issue.endsWith("graph") ? "graph" : "eager",
        memory: issue.startsWith("symmetric") ? "symmetric" : "ordinary",
        ...{ processes, awaited },
        ...(awaited && name.startsWith("native") && { program: "native" as const }),
      };
      const peer = found.object(name);
      const us = peer.positive("median_us");
      if (![true, undefined].includes(peer.get("right") as boolean | undefined)) {
        throw peer.fault("right", "true: wrong results have no time");
      }
      rows.add({ ...call, ranks, dtype, mode, us, source: document.file });
    }
  };
  for (const row of document.objects("results")) {
    const collective = rows.collective(row, compared);
    if (collective === undefined) continue;
    const count = row.whole("count", 0);
    const counts = collective === "allToAllv" ? comparedTraffic(row, count, ranks) : undefined;
    // The count of an all-to-allv is that of the heaviest rank, which may receive more than it sends.
    const bytes =
      counts === undefined ? testedBytes({ collective, ranks, count, dtype }) : 4 * count;
    if (row.whole("bytes", 0) !== bytes) {
      throw row.fault("bytes", `${bytes}, which ${count} elements of ${ranks} ranks are`);
    }
    add(row, { collective, count, counts }, false);
  }
  for (const row of document.objects("latency")) {
    const bytes = row.whole("bytes", 4);
    if (bytes % 4 !== 0) throw row.fault("bytes", "whole elements of 4 bytes");
    add(row, { collective: "allReduce", count: bytes / 4 }, true);
  }
}

/** The counts of an all-to-allv, of which a row holds those of the heaviest rank; its size is a power of two in bench/gpu/plan.mjs. */
function comparedTraffic(row: Fields, count: number, ranks: number): TrafficMatrix {
  const planned = Math.max(ranks, 2 ** Math.floor(Math.log2(count)));
  const traffic = skewedTraffic(planned, ranks, 0.5, 0);
  const heaviest = heaviestRank(traffic);
  if (heaviest !== count)
    throw row.fault("count", `${heaviest}, the heaviest rank's of ${planned}`);
  return traffic;
}

/** True for a peer that ran. */
function hasTime(peers: Fields, name: string): boolean {
  return peers.get(name) !== undefined && peers.object(name).get("median_us") !== undefined;
}

/** Refuses times of one call that no machine has at once. */
function refuseContradictions(measurements: readonly Measurement[]): void {
  const known = new Map<string, Measurement>();
  for (const measurement of measurements) {
    const { us, source, weight: _, ...call } = measurement;
    const key = JSON.stringify(call);
    const other = known.get(key);
    if (other === undefined) {
      known.set(key, measurement);
      continue;
    }
    if (Math.max(us, other.us) / Math.min(us, other.us) <= mostRatio) continue;
    const { collective, ranks } = call;
    throw new InvalidArgumentError(
      {
        headline: `${source}: ${collective} of ${ranks} ranks and ${testedBytes(measurement)} bytes: found ${us} µs, needs about the ${other.us} µs of ${other.source}`,
        hint: "measure on an idle machine, and calibrate with files of one machine",
      },
      { field: "time" },
    );
  }
}
