/** The result of a benchmark as data: nccl-tests' names, and further fields of this library. */
import { assertArgument, hasFields } from "../algorithms/arguments.ts";
import { bytesOf, type CollectiveName, type DType } from "../api/index.ts";
import { largest } from "../api/largest.ts";
import type { CallShape, MeasuredCollective } from "./collectives.ts";
import type { Environment } from "./environment.ts";
import type { Issue, Timed } from "./issue.ts";

/** One timed and checked placement of a call. */
export interface Measurement {
  /** Microseconds of one call, until the slowest rank has its result; the median where each was timed alone. */
  readonly time: number;
  /** 99th percentile in microseconds; only if each call is timed alone. */
  readonly p99?: number;
  /** 10⁹ bytes of `size` a second. */
  readonly alg_bw: number;
  /** `alg_bw` times the collective's bus factor. */
  readonly bus_bw: number;
  /** Wrong elements over all ranks; `null` without a check. */
  readonly nwrong: number | null;
  /** Elements that were compared, over all ranks. */
  readonly checked: number;
}

/** One row: a collective at one size. */
export interface BenchResult {
  readonly collective: CollectiveName;
  readonly backend: string;
  readonly ranks: number;
  /** The backend's algorithm, such as `ring`; `none` without an explanation. */
  readonly algorithm: string;
  /** Bytes, as nccl-tests defines them for the collective. */
  readonly size: number;
  /** Elements, as nccl-tests defines them for the collective. */
  readonly count: number;
  readonly type: string;
  readonly redop: string;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly out_of_place: Measurement;
  /** `null` where the collective has no in-place form. */
  readonly in_place: Measurement | null;
  /** Microseconds on the virtual clock, predicted; `null` where time is real or not explained. */
  readonly predicted_us: number | null;
}

/** The library and the devices of measured times. */
export interface GpuFacts {
  /** The version of NCCL; `null` where it was not found. */
  readonly nccl: string | null;
  /** Names of the GPUs. */
  readonly gpus: readonly string[];
  /** Time of the measurements, as ISO 8601 writes it. */
  readonly date: string;
}

/** The result of a benchmark; the command line adds the facts of GPUs. */
export interface BenchDocument extends Environment, Issue, Partial<GpuFacts> {
  /** The origin of times and bandwidths, such as "simulated, in process". */
  readonly timing: string;
  /** Number of processes of the ranks. */
  readonly processes: number;
  readonly results: readonly BenchResult[];
}

/** Wrong elements, compared elements and compared results of rows. */
export interface Tally {
  readonly wrong: number;
  readonly elements: number;
  readonly results: number;
}

/**
 * Sums up the checked results.
 *
 * @throws InvalidArgumentError for what is no result.
 */
export function tally(results: readonly BenchResult[]): Tally {
  assertResults("tally", results);
  const checked = results
    .flatMap((result) => [result.out_of_place, result.in_place])
    .filter((each) => each !== null)
    .filter((each) => each.nwrong !== null);
  return {
    wrong: checked.reduce((sum, { nwrong }) => sum + (nwrong ?? 0), 0),
    elements: checked.reduce((sum, each) => sum + each.checked, 0),
    results: checked.length,
  };
}

/**
 * nccl-tests' closing figure: the mean bus bandwidth of all placements.
 *
 * @throws InvalidArgumentError for what is no result.
 */
export function averageBusBandwidth(results: readonly BenchResult[]): number {
  assertResults("averageBusBandwidth", results);
  const measured = results
    .flatMap((result) => [result.out_of_place, result.in_place])
    .filter((each) => each !== null);
  return measured.reduce((sum, { bus_bw }) => sum + bus_bw, 0) / Math.max(1, measured.length);
}

// What no benchmark gave is refused by field.

const rowFields = {
  collective: "string",
  backend: "string",
  ranks: "number",
  algorithm: "string",
  size: "number",
  count: "number",
  type: "string",
  redop: "string",
  root: "number",
} as const;

const figureFields = {
  time: "number",
  alg_bw: "number",
  bus_bw: "number",
  checked: "number",
} as const;

function isMeasurement(found: unknown): boolean {
  if (!hasFields(found, figureFields)) return false;
  const { nwrong, p99 = 0 } = found as Measurement;
  return isNumberOrNull(nwrong) && typeof p99 === "number";
}

function isNumberOrNull(found: unknown): boolean {
  return found === null || typeof found === "number";
}

/** Needs one row, as `bench` gives it. */
export function assertResult(subject: string, field: string, found: unknown): void {
  assertArgument(hasFields(found, rowFields), subject, field, found, "a result of bench");
  const { out_of_place: apart, in_place: inPlace, predicted_us: us } = found as BenchResult;
  assertArgument(isMeasurement(apart), subject, `${field}.out_of_place`, apart, "a measurement");
  const hasInPlace = inPlace === null || isMeasurement(inPlace);
  assertArgument(hasInPlace, subject, `${field}.in_place`, inPlace, "a measurement or null");
  assertArgument(isNumberOrNull(us), subject, `${field}.predicted_us`, us, "a number or null");
}

/** Needs rows, as `bench` gives them. */
export function assertResults(subject: string, found: readonly unknown[]): void {
  assertArgument(Array.isArray(found), subject, "results", found, "an array of results of bench");
  for (const [at, each] of found.entries()) assertResult(subject, `results[${at}]`, each);
}

/** One rank's figures; numbers only, so that processes can exchange them. */
export interface RankFigures {
  /** Milliseconds on a clock that the ranks of one process share. */
  readonly began: number;
  readonly ended: number;
  /** Microseconds of a call timed alone; 0 where none was. */
  readonly median: number;
  readonly p99: number;
  /** Wrong elements of this rank's result, and elements that were compared. */
  readonly wrong: number;
  readonly checked: number;
}

/** A rank's figures, from its times. The 99th percentile is the least sample that 99 % of all samples do not exceed. */
export function figuresOf(
  { began, ended, samples }: Timed,
  { wrong, checked }: Pick<RankFigures, "wrong" | "checked">,
): RankFigures {
  const at = (part: number): number => samples[Math.ceil(part * samples.length) - 1] ?? 0;
  return { began, ended, median: at(0.5), p99: at(0.99), wrong, checked };
}

/** The measurement of a call: times of the slowest rank, wrong elements of all ranks. */
export function measurementOf(
  figures: readonly RankFigures[],
  call: {
    readonly row: MeasuredCollective;
    readonly shape: CallShape;
    readonly dtype: DType;
    readonly iterations: number;
    readonly issue: Issue;
    readonly check: boolean;
  },
): Measurement {
  const { row, shape, dtype, iterations, issue, check } = call;
  const most = (of: (figures: RankFigures) => number): number => largest(figures.map(of));
  const sum = (of: (figures: RankFigures) => number): number =>
    figures.reduce((total, each) => total + of(each), 0);
  const elapsedMs =
    most(({ ended }) => ended) -
    figures.reduce((least, { began }) => Math.min(least, began), Number.POSITIVE_INFINITY);
  const time = issue.latency ? most(({ median }) => median) : (elapsedMs * 1000) / iterations;
  const bandwidth = time > 0 ? (shape.sizeElements * bytesOf(dtype)) / 1e3 / time : 0;
  return {
    time,
    ...(issue.latency && { p99: most(({ p99 }) => p99) }),
    alg_bw: bandwidth,
    bus_bw: bandwidth * row.busFactor(shape.ranks),
    nwrong: check ? sum(({ wrong }) => wrong) : null,
    checked: sum(({ checked }) => checked),
  };
}
