/** Measures the calls of a calibration: all sweeps among the same ranks, without a check of results. */
import { benchOn } from "../bench.ts";
import type { BenchDocument } from "../document.ts";
import { type Environment, environment } from "../environment.ts";
import { joinJob, openJob } from "../job.ts";
import type { BenchOptions } from "../options.ts";
import { type CalibrationSweep, sweepsUpTo } from "./set.ts";

/** Where and how often the calls are measured. */
export interface CalibrationOptions
  extends Pick<
    BenchOptions,
    "backend" | "ranks" | "iterations" | "warmup" | "connected" | "onResult" | "onProgress"
  > {
  /** Largest size in bytes. */
  readonly mostBytes: number;
  /** Called before a sweep. */
  readonly onSweep?: (sweep: CalibrationSweep) => void;
}

/** The results of all sweeps. */
export interface CalibrationDocument extends Environment {
  readonly runs: readonly BenchDocument[];
}

/** Measures all sweeps. */
export async function measureCalibration(
  options: CalibrationOptions,
): Promise<CalibrationDocument> {
  const { mostBytes, onSweep, ...shared } = options;
  const { backend, ranks, connected = false } = shared;
  const job = await (connected ? joinJob(backend, ranks) : openJob(backend, ranks));
  try {
    const runs: BenchDocument[] = [];
    for (const sweep of sweepsUpTo(mostBytes)) {
      onSweep?.(sweep);
      runs.push(await benchOn(job, { ...shared, ...sweep, check: false }));
    }
    return { ...environment(), runs };
  } finally {
    await job.close();
  }
}
