/**
 * The uncertainty that a fit leaves in the times of calls: the covariance of its numbers, measurement by measurement.
 *
 * It depends on the measured calls and not on their times, so that it ranks calls that no machine has run yet. Recursive least
 * squares: every measurement removes its direction from the covariance.
 */
import { numberAt, pathsOf, pull, withNumbers } from "./fit.ts";
import { callUs, modeOf } from "./model.ts";
import type { ModelNumbers } from "./numbers.ts";
import type { MachineProfile } from "./profile.ts";
import { type TimedQuestion, timedCall } from "./question.ts";

/** The covariance of the logarithms of a profile's numbers. */
export class Uncertainty {
  readonly #profile: MachineProfile;
  /** Relative standard deviation of one measured time. */
  readonly #noise: number;
  readonly #covariance: Float64Array[];
  /** For each number, the profile's numbers with that one a little larger. */
  readonly #moved: readonly ModelNumbers[];

  /** Before any measurement: numbers are held by the pull of the fit alone. */
  constructor(profile: MachineProfile, noise: number) {
    this.#profile = profile;
    this.#noise = noise;
    const paths = pathsOf(profile.numbers);
    this.#moved = paths.map((path) =>
      withNumbers(profile.numbers, [path], [numberAt(profile.numbers, path) * Math.exp(change)]),
    );
    this.#covariance = paths.map((_, i) => {
      const row = new Float64Array(paths.length);
      row[i] = (noise / pull) ** 2;
      return row;
    });
  }

  /** Relative standard deviation of the predicted time of a call; 0 for one that moves nothing. */
  of(question: TimedQuestion): number {
    const slopes = this.#slopes(question);
    return slopes === undefined ? 0 : Math.sqrt(Math.max(0, dot(slopes, this.#times(slopes))));
  }

  /** Takes the call as measured once more. */
  measure(question: TimedQuestion): void {
    const slopes = this.#slopes(question);
    if (slopes === undefined) return;
    const gain = this.#times(slopes);
    const variance = this.#noise ** 2 + dot(slopes, gain);
    this.#covariance.forEach((row, i) => {
      const factor = (gain[i] as number) / variance;
      for (let j = 0; j < row.length; j++)
        row[j] = (row[j] as number) - factor * (gain[j] as number);
    });
  }

  #times(slopes: Float64Array): Float64Array {
    return Float64Array.from(this.#covariance, (row) => dot(row, slopes));
  }

  /** By number, the relative change of the time for a relative change of the number. */
  #slopes(question: TimedQuestion): Float64Array | undefined {
    const { mode: usual, numbers } = this.#profile;
    const mode = modeOf(usual, question.mode);
    const call = timedCall(question, this.#profile, mode);
    if (call === undefined) return undefined;
    const us = callUs(numbers, call, mode);
    return Float64Array.from(
      this.#moved,
      (moved) => Math.log(callUs(moved, call, mode) / us) / change,
    );
  }
}

/** Change of a number's logarithm for the slope of a time. */
const change = 1e-4;

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}
