/** The result of a benchmark as data: nccl-tests' names, and beside them what only this library knows. */
import type { CollectiveName } from "../api/index.ts";
import type { Environment } from "./environment.ts";
import type { Issue } from "./issue.ts";

/** One timed and checked placement of a call. */
export interface Measurement {
  /** Microseconds of one call, until the slowest rank has its result; the median where each was timed alone. */
  readonly time: number;
  /** Microseconds that 99 of 100 calls keep to; only where each was timed alone. */
  readonly p99?: number;
  /** 10⁹ bytes of `size` a second. */
  readonly alg_bw: number;
  /** `alg_bw` times the collective's bus factor. */
  readonly bus_bw: number;
  /** Wrong elements over all ranks; `null` when nothing was checked. */
  readonly nwrong: number | null;
  /** Elements that were compared, over all ranks. */
  readonly checked: number;
}

/** One row: a collective at one size. */
export interface BenchResult {
  readonly collective: CollectiveName;
  readonly backend: string;
  readonly ranks: number;
  /** The backend's algorithm, such as `ring`; `none` where it can explain nothing. */
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

/** The result of a benchmark. */
export interface BenchDocument extends Environment, Issue {
  /** The origin of times and bandwidths, such as "simulated, in process". */
  readonly timing: string;
  /** Processes that the ranks live in. */
  readonly processes: number;
  readonly results: readonly BenchResult[];
}

/** Wrong elements, compared elements and compared results of rows. */
export interface Tally {
  readonly wrong: number;
  readonly elements: number;
  readonly results: number;
}

/** Adds up what was checked. */
export function tally(results: readonly BenchResult[]): Tally {
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

/** nccl-tests' closing figure: the mean bus bandwidth of all placements. */
export function averageBusBandwidth(results: readonly BenchResult[]): number {
  const measured = results
    .flatMap((result) => [result.out_of_place, result.in_place])
    .filter((each) => each !== null);
  return measured.reduce((sum, { bus_bw }) => sum + bus_bw, 0) / Math.max(1, measured.length);
}
