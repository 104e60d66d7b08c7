/**
 * Learning rates over time, as pure functions of the number of updates. A schedule has no state, so a run resumed at a step has
 * the rates of an uninterrupted run.
 */
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import { assertCount } from "../argument-checks.ts";

/** The learning rate of the update after `step` updates: `schedule(0)` is the first one's. */
export type Schedule = (step: number) => number;

/**
 * A constant rate.
 *
 * @throws InvalidArgumentError for a rate below 0 or not a number.
 */
export function constant(learningRate: number): Schedule {
  assertRate("constant", "learningRate", learningRate);
  return () => learningRate;
}

/** A schedule, or that of a constant rate; refuses a value that is neither a number of at least 0 nor a function. */
export function scheduleOf(subject: string, field: string, rate: number | Schedule): Schedule {
  if (typeof rate === "function") return rate;
  assertRate(subject, field, rate);
  return () => rate;
}

/** Options of `warmUp`. */
export interface WarmUpOptions {
  /** Number of updates until the full rate: update 0 has the share `start` of it, update `steps` all of it. */
  readonly steps: number;
  /** Share of the full rate that the first update has; 0 when left out. */
  readonly start?: number | undefined;
  /** The schedule behind the warm-up; its first rate is the full one, and its steps are counted from the end of the warm-up. */
  readonly after: number | Schedule;
}

/**
 * Raises the rate in a straight line to the first of another schedule, then follows it. As PyTorch's `LinearLR` in a
 * `SequentialLR`.
 *
 * @throws InvalidArgumentError for steps that are not an integer of at least 0, a start outside 0 to 1, or an `after` that is
 * neither a rate nor a schedule.
 * @example
 * const schedule = warmUp({ steps: 100, after: cosine({ peak: 3e-4, steps: 1000 }) });
 */
export function warmUp(options: WarmUpOptions): Schedule {
  assertOptions("warmUp", options, { steps: true, start: true, after: true });
  const { steps, start = 0, after } = options;
  assertCount("warmUp", "steps", steps, 0);
  if (!(typeof start === "number" && start >= 0 && start <= 1))
    throw invalid("warmUp", "start", textOf(start), "a number from 0 to 1");
  const next = scheduleOf("warmUp", "after", after);
  return (step) =>
    step >= steps ? next(step - steps) : next(0) * (start + (1 - start) * (step / steps));
}

/** Options of `cosine`. */
export interface CosineOptions {
  /** The first rate. */
  readonly peak: number;
  /** The last rate, kept from then on; 0 when left out. */
  readonly minimum?: number | undefined;
  /** Number of updates from the first rate to the last. */
  readonly steps: number;
}

/**
 * Lowers the rate along half a cosine, and keeps it at the minimum after that. As PyTorch's `CosineAnnealingLR` up to its
 * `T_max`, where that one would rise again.
 *
 * @throws InvalidArgumentError for rates below 0, a minimum above the peak, or steps that are not an integer of at least 0.
 * @example
 * const rule = adamW({ learningRate: cosine({ peak: 3e-4, minimum: 3e-5, steps: 1000 }) });
 */
export function cosine(options: CosineOptions): Schedule {
  assertOptions("cosine", options, { peak: true, minimum: true, steps: true });
  const { peak, minimum = 0, steps } = options;
  assertRate("cosine", "peak", peak);
  assertRate("cosine", "minimum", minimum);
  if (minimum > peak)
    throw invalid("cosine", "minimum", textOf(minimum), `at most the peak, ${peak}`);
  assertCount("cosine", "steps", steps, 0);
  return (step) =>
    step >= steps
      ? minimum
      : minimum + ((peak - minimum) * (1 + Math.cos((Math.PI * step) / steps))) / 2;
}

function assertRate(schedule: string, field: string, rate: number): void {
  if (typeof rate === "number" && rate >= 0 && rate < Number.POSITIVE_INFINITY) return;
  throw invalid(schedule, field, textOf(rate), "a number of at least 0");
}
