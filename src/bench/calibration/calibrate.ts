/** A profile for a machine from its measured times: fitted where they decide it, refused where they do not. */
import {
  type CallMode,
  choiceOf,
  fitProfile,
  type MachineProfile,
  type Measurement,
  machineProfiles,
  type ProfileOrigin,
  type Residual,
  testedBytes,
} from "../../algorithms/index.ts";
import { modeText } from "../../algorithms/nccl/index.ts";
import { Uncertainty } from "../../algorithms/nccl/times/uncertainty.ts";
import { InvalidArgumentError } from "../../api/index.ts";
import { sizeText } from "../sizes.ts";
import type { MeasuredTimes } from "./results.ts";
import { type CalibrationCall, calibrationCalls } from "./sweeps.ts";

/** A call that is worth measuring. */
export interface NextCall {
  readonly question: CalibrationCall;
  /** Relative standard deviation of its predicted time. */
  readonly uncertainty: number;
}

/** A fitted profile, what is left of the measured times, and what they leave open. */
export interface Calibration {
  readonly profile: MachineProfile;
  readonly residuals: readonly Residual[];
  /** The calls of the set that the profile predicts worst, each with those before it measured. */
  readonly next: readonly NextCall[];
}

/** The first numbers of a fit. */
export const startProfile = machineProfiles["h200x8"] as MachineProfile;

/** Least sizes of a collective in one mode. */
const leastSizes = 3;

/** Largest relative standard deviation of a time within the measured range; a call with a larger one is worth measuring. */
const mostUncertain = 0.15;

/** Relative standard deviation of a measured time, before the residuals are known. */
const usualNoise = 0.03;

/**
 * Fits a profile to measured times.
 *
 * @throws InvalidArgumentError for too little data: it names the collective, the choice and the size that they leave open.
 */
export function calibrate(times: MeasuredTimes, origin: Omit<ProfileOrigin, "mode">): Calibration {
  const { measurements } = times;
  if (measurements.length === 0) {
    throw tooLittle("no measured call of NCCL between GPUs", []);
  }
  refuseFewSizes(measurements);
  refuseUncertain(measurements);
  const mode = commonestMode(measurements);
  const { profile, residuals } = fitProfile({ ...origin, mode }, measurements, startProfile);
  const errors = residuals.map(({ measurement, modelUs }) => Math.log(modelUs / measurement.us));
  const rms = Math.sqrt(errors.reduce((sum, each) => sum + each ** 2, 0) / errors.length);
  const uncertainty = new Uncertainty(profile, Math.max(0.01, rms));
  for (const measurement of measurements) uncertainty.measure(measurement);
  return { profile, residuals, next: nextCalls(uncertainty, measurements, times.gpus.length) };
}

/** The way of calling of most measurements, whatever program called. */
function commonestMode(measurements: readonly Measurement[]): CallMode {
  const modes = measurements.map(({ mode: { program: _, ...mode } }): CallMode => mode);
  const groups = [...grouped(modes, (mode) => JSON.stringify(mode)).values()];
  const [first] = groups.reduce((a, b) => (b.length > a.length ? b : a));
  return first as CallMode;
}

function grouped<T>(values: readonly T[], keyOf: (value: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [value]);
    else group.push(value);
  }
  return groups;
}

/** Measurements of a collective in one mode; awaited calls differ by one term, which one size decides. */
function refuseFewSizes(measurements: readonly Measurement[]): void {
  const groups = grouped(measurements, ({ collective, mode, forced }) =>
    JSON.stringify([collective, mode, forced]),
  );
  for (const group of groups.values()) {
    const first = group[0] as Measurement;
    const sizes = new Set(group.map(testedBytes)).size;
    if (first.mode.awaited || sizes >= leastSizes) continue;
    const found = `${sizes} size${sizes === 1 ? "" : "s"}`;
    throw tooLittle(
      `${first.source}: ${callText(first)}: found ${found}, needs ${leastSizes} or more`,
      openCalls(measurements),
    );
  }
}

/** Refuses measurements that leave a time between the least and the largest measured size open. */
function refuseUncertain(measurements: readonly Measurement[]): void {
  const uncertainty = uncertaintyBefore(measurements);
  const groups = grouped(measurements, ({ collective, ranks, mode, forced }) =>
    JSON.stringify([collective, ranks, mode, forced]),
  );
  let worst: { readonly question: Measurement; readonly deviation: number } | undefined;
  for (const group of groups.values()) {
    const counts = group.map(({ count }) => count);
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    for (let count = least; count <= most; count *= 2) {
      const question = { ...(group[0] as Measurement), count };
      const deviation = uncertainty.of(question);
      if (deviation > (worst?.deviation ?? mostUncertain)) worst = { question, deviation };
    }
  }
  if (worst === undefined) return;
  const { question, deviation } = worst;
  const size = sizeText(testedBytes(question));
  const choice = choiceOf(startProfile, question)?.name;
  throw tooLittle(
    `${question.source}: ${callText(question)} of ${question.ranks} ranks, ${size} by ${choice}: ${percent(deviation)} uncertain, needs ${percent(mostUncertain)} or less`,
    openCalls(measurements),
  );
}

function percent(part: number): string {
  return `${(100 * part).toFixed(0)} %`;
}

function openCalls(measurements: readonly Measurement[]): readonly NextCall[] {
  return nextCalls(uncertaintyBefore(measurements), measurements, 0);
}

/** The uncertainty that measurements will leave. */
function uncertaintyBefore(measurements: readonly Measurement[]): Uncertainty {
  const uncertainty = new Uncertainty(startProfile, usualNoise);
  for (const measurement of measurements) uncertainty.measure(measurement);
  return uncertainty;
}

/** Most calls that are named at once. */
const mostNext = 5;

/** The most uncertain calls of the calibration, of the worlds that were measured and of 2, 4 and 8 of the GPUs. */
function nextCalls(
  uncertainty: Uncertainty,
  measurements: readonly Measurement[],
  gpus: number,
): readonly NextCall[] {
  const worlds = new Set(measurements.map(({ ranks }) => ranks));
  for (const ranks of [2, 4, 8]) if (ranks <= gpus) worlds.add(ranks);
  const processes = measurements.some(({ mode }) => mode.processes === "each") ? "each" : "one";
  const calls = [...worlds].flatMap((ranks) => calibrationCalls(ranks, processes));
  const next: NextCall[] = [];
  while (next.length < mostNext) {
    let found: NextCall | undefined;
    for (const question of calls) {
      const deviation = uncertainty.of(question);
      if (deviation > (found?.uncertainty ?? mostUncertain)) {
        found = { question, uncertainty: deviation };
      }
    }
    if (found === undefined) break;
    next.push(found);
    uncertainty.measure(found.question);
  }
  return next;
}

/** The collective of a call with its way of calling. */
export function callText({
  collective,
  mode,
}: Pick<NextCall["question"], "collective" | "mode">): string {
  return `${collective}, ${modeText(mode)}`;
}

/** One line about a call to measure. */
export function nextText({ question, uncertainty }: NextCall): string {
  const size = sizeText(testedBytes(question));
  return `${callText(question)}, ${question.ranks} ranks, ${size} (${percent(uncertainty)} uncertain)`;
}

function tooLittle(headline: string, next: readonly NextCall[]): InvalidArgumentError {
  const calls = next.map((each) => `\n  ${nextText(each)}`).join("");
  const measure =
    "twinccl bench --calibration --backend nccl -g N --out FILE measures what a profile needs";
  const hint = calls === "" ? measure : `${measure}; next would be:${calls}`;
  return new InvalidArgumentError({ headline, hint }, { field: "results" });
}
