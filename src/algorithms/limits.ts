/**
 * Limits of programs and of their indexes. A larger program is refused before it takes minutes or all memory.
 *
 * The limits allow a ring of 2,048 ranks, or of 1,448 if its folds are needed too.
 */
import { UnsupportedError } from "../api/errors.ts";

/** Steps of all ranks together. */
export const maxSteps = 2 ** 23;

/** Steps of a program that `fuse` accepts. */
const maxFusedSteps = 2 ** 22;

/** Pairs of lanes in a program that `fuse` accepts. */
const maxPairs = 2 ** 24;

/** Pairs of lanes and ranks in a program that is verified: the verifier keeps two integers for each. */
const maxMatchedPairs = 2 ** 26;

/** The facts that the errors name. */
interface ProgramSize {
  readonly collective: string;
  readonly algorithm: string;
  readonly ranks: number;
}

/** The error for a program of more steps than the limit. */
export function tooManySteps(program: ProgramSize): UnsupportedError {
  return tooLarge(program, `more than ${maxSteps.toLocaleString("en")} steps, the limit`);
}

/** The error for a program that is too large to be timed. */
export function tooMuchTraffic(program: ProgramSize, most: number, what: string): UnsupportedError {
  return tooLarge(program, `more than ${most.toLocaleString("en")} ${what}, the limit`);
}

/** Rejects a program that is too large for `fuse`. */
export function assertFusible(
  program: ProgramSize & { readonly channels: number },
  steps: number,
): void {
  const { ranks, channels } = program;
  const limit = maxFusedSteps.toLocaleString("en");
  if (steps > maxFusedSteps) {
    throw tooLarge(program, `${steps.toLocaleString("en")} steps, folds are read up to ${limit}`);
  }
  if (channels * ranks * ranks <= maxPairs) return;
  const most = Math.floor(Math.sqrt(maxPairs / channels)).toLocaleString("en");
  throw tooLarge(program, `${channels} lanes a rank, with folds read up to ${most} ranks`);
}

/** Rejects a program that has too many messages to match in memory. */
export function assertMatchable(program: ProgramSize & { readonly channels: number }): void {
  const { ranks, channels } = program;
  if (channels * ranks * ranks <= maxMatchedPairs) return;
  const most = Math.floor(Math.sqrt(maxMatchedPairs / channels)).toLocaleString("en");
  throw tooLarge(program, `${channels} lanes a rank, which are verified up to ${most} ranks`);
}

/** True for the error that rejects a program for its size. */
export function isTooLarge(error: unknown): boolean {
  return error instanceof UnsupportedError && error.field === "program";
}

function tooLarge({ collective, algorithm, ranks }: ProgramSize, what: string): UnsupportedError {
  return new UnsupportedError(
    {
      headline: `${collective} by ${algorithm} on ${ranks} ranks: a program of ${what}`,
      hint: "take fewer ranks, or an algorithm of fewer steps",
    },
    { field: "program", collective, size: ranks },
  );
}
