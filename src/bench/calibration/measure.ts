/** Measures the calls of a calibration: all sweeps among the same ranks, without a check of results. */
import { benchOn } from "../bench.ts";
import type { BenchDocument } from "../document.ts";
import { type Environment, environment } from "../environment.ts";
import type { BenchJob } from "../job.ts";
import type { BenchOptions } from "../options.ts";
import { type CalibrationSweep, mostQuickBytes, sweepsUpTo } from "./sweeps.ts";

/** Where and how often the calls are measured. */
export interface CalibrationOptions
  extends Pick<
    BenchOptions,
    "backend" | "ranks" | "warmup" | "connected" | "onResult" | "onProgress"
  > {
  /** Timed calls of a row in each round, a tenth of them in sweeps above 16 MiB. */
  readonly iterations: number;
  /** Largest size in bytes. */
  readonly mostBytes: number;
  /** Called before a sweep. */
  readonly onSweep?: (sweep: CalibrationSweep) => void;
}

/** The results of all sweeps. */
export interface CalibrationDocument extends Environment {
  readonly runs: readonly BenchDocument[];
}

/** The number of measurements of a row: an interruption of the host can make one several times as long. */
const rounds = 5;

/** Measures all sweeps among ranks that have started, each row five times. */
export async function measureCalibration(
  job: BenchJob,
  { mostBytes, iterations, onSweep, ...shared }: CalibrationOptions,
): Promise<CalibrationDocument> {
  const runs: BenchDocument[] = [];
  for (const sweep of sweepsUpTo(mostBytes)) {
    onSweep?.(sweep);
    const part = sweep.sizes.min > mostQuickBytes ? 10 : 1;
    const often = { iterations: Math.ceil(iterations / part), rounds };
    runs.push(await benchOn(job, { ...shared, ...sweep, ...often, check: false }));
  }
  return { ...environment(), runs };
}
