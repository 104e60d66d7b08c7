/**
 * A machine's numbers from measured times: least squares of the logarithm of modelled by measured time.
 *
 * The method is Levenberg's and Marquardt's over logarithms of the numbers, so that all stay positive. It has no randomness:
 * equal measurements give equal numbers. A weak pull towards the starting numbers fixes those that no measurement depends on.
 */
import { invalid, textOf } from "../../../api/option-kinds.ts";
import { isTopologyName } from "../machines.ts";
import type { TimedCall } from "./call.ts";
import { type CallMode, callUs, modeOf } from "./model.ts";
import type { ModelNumbers } from "./numbers.ts";
import type {
  MachineProfile,
  MeasuredCalls,
  MeasuredCollective,
  MeasuredRange,
} from "./profile.ts";
import { checkedProfile } from "./profile-file.ts";
import { choiceNameOf, type TimedQuestion, testedBytes, timedCall, wayText } from "./question.ts";

/** A measured call. */
export interface Measurement extends TimedQuestion {
  readonly mode: CallMode;
  /** Microseconds of one call. */
  readonly us: number;
  /** Origin of the time, such as a file. */
  readonly source: string;
  /** Times as important as another one; 1 when left out. */
  readonly weight?: number | undefined;
}

/** A measurement beside the model's time. */
export interface Residual {
  readonly measurement: Measurement;
  readonly modelUs: number;
}

/** A fitted profile, and its residuals. */
export interface FittedProfile {
  readonly profile: MachineProfile;
  readonly residuals: readonly Residual[];
}

/** A measurement with the facts of its call. */
interface Timed {
  readonly measurement: Measurement;
  readonly call: TimedCall;
}

/** The fields of a profile that no fit decides. */
export type ProfileOrigin = Omit<MachineProfile, "measured" | "numbers">;

/** Pull towards the starting numbers: as one measurement that is off by this part of a number's change. */
export const pull = 0.01;
const mostSteps = 100;

/**
 * Fits all numbers to the measurements together, from the numbers of `start`. Measured calls that move nothing are left out.
 * Numbers have four digits.
 *
 * @throws InvalidArgumentError with the field of a wrong measurement or profile.
 */
export function fitProfile(
  origin: ProfileOrigin,
  measurements: readonly Measurement[],
  start: MachineProfile,
): FittedProfile {
  checkPlanned(origin, "origin");
  const timed = timedOf(origin, measurements);
  checkedProfile(start, "start");
  const paths = pathsOf(start.numbers);
  const from = paths.map((path) => Math.log(numberAt(start.numbers, path)));
  const numbersAt = (logs: readonly number[]): ModelNumbers =>
    withNumbers(start.numbers, paths, logs.map(Math.exp));
  const errors = (logs: readonly number[]): number[] => {
    const numbers = numbersAt(logs);
    const found = timed.map(({ measurement: { mode, us, weight = 1 }, call }) => {
      return weight * Math.log(callUs(numbers, call, mode) / us);
    });
    return [...found, ...logs.map((log, i) => pull * (log - (from[i] as number)))];
  };
  const found = leastSquares(errors, from).map((log) => Number(Math.exp(log).toPrecision(4)));
  const numbers = withNumbers(start.numbers, paths, found);
  const measured = measuredOf(timed);
  const residuals = timed.map(({ measurement, call }) => {
    return { measurement, modelUs: callUs(numbers, call, measurement.mode) };
  });
  return { profile: { ...origin, measured, numbers }, residuals };
}

/** Measurements beside the times by a profile. */
export function residualsOf(
  profile: MachineProfile,
  measurements: readonly Measurement[],
): readonly Residual[] {
  checkPlanned(profile, "profile");
  return timedOf(profile, measurements).map(({ measurement, call }) => {
    return { measurement, modelUs: callUs(profile.numbers, call, measurement.mode) };
  });
}

function timedOf(origin: ProfileOrigin, measurements: readonly Measurement[]): Timed[] {
  if (!Array.isArray(measurements)) {
    throw invalid(subject, "measurements", textOf(measurements), "a list of measured calls");
  }
  return measurements.flatMap((measurement: Measurement): Timed[] => {
    checkMeasurement(measurement);
    // No other mode stands in for that of a measurement.
    const call = timedCall(measurement, origin, modeOf({}, measurement.mode));
    return call === undefined ? [] : [{ measurement, call }];
  });
}

const subject = "fit of a profile";

function checkPlanned(origin: Partial<ProfileOrigin> | null | undefined, field: string): void {
  if (isTopologyName(origin?.topology) && typeof origin?.nccl === "string") return;
  throw invalid(subject, field, textOf(origin), "the origin of a profile, with its topology");
}

function checkMeasurement(measurement: Partial<Measurement> | null): void {
  const { us, weight = 1 } = measurement ?? {};
  const isNumber = (value: unknown, least: number): boolean =>
    typeof value === "number" && value >= least && value < Number.POSITIVE_INFINITY;
  if (!isNumber(us, Number.MIN_VALUE)) {
    throw invalid(subject, "us", textOf(us), "a finite time above 0");
  }
  if (!isNumber(weight, 0)) {
    throw invalid(subject, "weight", textOf(weight), "a finite number of at least 0");
  }
}

/** The measured calls by collective. */
function measuredOf(calls: readonly Timed[]): Record<string, MeasuredCollective> {
  const names = [...new Set(calls.map(({ measurement }) => measurement.collective))];
  return Object.fromEntries(
    names.map((name) => {
      const group = calls.filter(({ measurement }) => measurement.collective === name);
      const modes = rangesBy(
        group,
        ({ measurement, call }) => wayText(measurement, call, measurement.mode),
        ({ measurement }) => [testedBytes(measurement), testedBytes(measurement)],
      );
      const choices = rangesBy(
        group,
        ({ call }) => choiceNameOf(call),
        ({ measurement }) => upToNext(measurement, group),
      );
      const dtypes = [...new Set(group.map(({ measurement }) => measurement.dtype))];
      return [name, { modes, choices, dtypes }];
    }),
  );
}

/** By name the ranges of its calls, of which each has bytes. */
function rangesBy(
  calls: readonly Timed[],
  nameOf: (call: Timed) => string,
  bytesOf: (call: Timed) => MeasuredRange,
): Record<string, MeasuredCalls> {
  const found: Record<string, MeasuredCalls> = {};
  for (const each of calls) {
    const { ranks } = each.measurement;
    const own = { ranks: [ranks, ranks], bytes: bytesOf(each) } as const;
    const name = nameOf(each);
    const known = found[name] ?? own;
    found[name] = {
      ranks: union(known.ranks, own.ranks),
      bytes: union(known.bytes, own.bytes),
    };
  }
  return found;
}

function union(a: MeasuredRange, b: MeasuredRange): MeasuredRange {
  return [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
}

/**
 * NCCL changes its choice somewhere between two sizes that were measured on as many ranks in memory of the same kind, so that what holds
 * for a size holds up to the next ones. A forced choice has none.
 */
function upToNext(measurement: Measurement, group: readonly Timed[]): MeasuredRange {
  const bytes = testedBytes(measurement);
  let [least, most] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const { measurement: other } of measurement.forced ? [] : group) {
    if (other.forced || other.ranks !== measurement.ranks) continue;
    if (isSymmetric(other) !== isSymmetric(measurement)) continue;
    const size = testedBytes(other);
    if (size < bytes) least = Math.max(least, size + 1);
    else if (size > bytes) most = Math.min(most, size - 1);
  }
  return [Number.isFinite(least) ? least : bytes, Number.isFinite(most) ? most : bytes];
}

/** True in symmetric memory, for which NCCL has other choices. */
function isSymmetric({ mode }: Measurement): boolean {
  return mode.memory === "symmetric";
}

/** The arguments with the least sum of squares of the errors near `origin`. */
function leastSquares(
  errors: (at: readonly number[]) => readonly number[],
  origin: readonly number[],
): readonly number[] {
  let at = origin;
  let found = errors(at);
  let sum = squares(found);
  let damping = 1e-3;
  for (let step = 0; step < mostSteps; step++) {
    const slopes = slopesOf(errors, at, found);
    const products = slopes.map((a) => slopes.map((b) => dot(a, b)));
    const gradient = slopes.map((slope) => -dot(slope, found));
    const before = sum;
    for (let attempt = 0; attempt < 10 && sum === before; attempt++) {
      const damped = products.map((row, i) =>
        row.map((value, j) => (i === j ? value * (1 + damping) + 1e-12 : value)),
      );
      const change = solve(damped, gradient);
      const next = at.map((log, i) => log + Math.max(-1, Math.min(1, change[i] as number)));
      const nextErrors = errors(next);
      const nextSum = squares(nextErrors);
      if (nextSum < sum) {
        [at, found, sum] = [next, nextErrors, nextSum];
        damping = Math.max(1e-9, damping / 4);
      } else damping *= 4;
    }
    if (before - sum <= 1e-9 * before) break;
  }
  return at;
}

/** By argument, the change of every error for a unit of it. */
function slopesOf(
  errors: (at: readonly number[]) => readonly number[],
  at: readonly number[],
  found: readonly number[],
): number[][] {
  const step = 1e-5;
  return at.map((_, k) => {
    const moved = errors(at.map((log, i) => (i === k ? log + step : log)));
    return moved.map((error, i) => (error - (found[i] as number)) / step);
  });
}

function dot(a: readonly number[], b: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

function squares(values: readonly number[]): number {
  return dot(values, values);
}

/** Solves a system of linear equations by elimination with the largest pivot first. */
function solve(matrix: readonly (readonly number[])[], right: readonly number[]): number[] {
  const size = right.length;
  const rows = matrix.map((row, i) => [...row, right[i] as number]);
  for (let i = 0; i < size; i++) {
    let pivot = i;
    for (let j = i + 1; j < size; j++) {
      if (Math.abs(rows[j]?.[i] ?? 0) > Math.abs(rows[pivot]?.[i] ?? 0)) pivot = j;
    }
    const row = rows[pivot] as number[];
    rows[pivot] = rows[i] as number[];
    rows[i] = row;
    for (let j = i + 1; j < size; j++) {
      const other = rows[j] as number[];
      const factor = (other[i] as number) / (row[i] as number);
      for (let k = i; k <= size; k++) other[k] = (other[k] as number) - factor * (row[k] as number);
    }
  }
  const found = new Array<number>(size).fill(0);
  for (let i = size - 1; i >= 0; i--) {
    const row = rows[i] as number[];
    let rest = row[size] as number;
    for (let j = i + 1; j < size; j++) rest -= (row[j] as number) * (found[j] as number);
    found[i] = rest / (row[i] as number);
  }
  return found;
}

/** Names of a number, from the outermost. */
type Path = readonly string[];

/** Paths of all numbers. */
export function pathsOf(numbers: object, before: Path = []): readonly Path[] {
  return Object.entries(numbers).flatMap(([name, value]) => {
    const path = [...before, name];
    return typeof value === "number" ? [path] : pathsOf(value as object, path);
  });
}

/** The number at a path. */
export function numberAt(numbers: object, path: Path): number {
  let at: unknown = numbers;
  for (const name of path) at = (at as Record<string, unknown>)[name];
  return at as number;
}

/** A copy with other numbers at these paths. */
export function withNumbers(
  numbers: ModelNumbers,
  paths: readonly Path[],
  values: readonly number[],
): ModelNumbers {
  const copy = structuredClone(numbers);
  paths.forEach((path, i) => {
    const last = path.at(-1) as string;
    (parentOf(copy, path) as Record<string, number>)[last] = values[i] as number;
  });
  return copy;
}

function parentOf(numbers: object, path: Path): object {
  let at = numbers;
  for (const name of path.slice(0, -1)) at = (at as Record<string, object>)[name] as object;
  return at;
}
