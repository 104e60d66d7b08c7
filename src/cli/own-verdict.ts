/** The verdict on a user's own algorithm, before a command uses it: the one that `sim({ algorithms })` goes by. */
import { type Algorithm, builtCollectives, isTooLarge } from "../algorithms/index.ts";
import { assertAlgorithm, soundProgram } from "../algorithms/plans/catalogue-planner.ts";
import { InvalidArgumentError, type SpecifiedCollective, specifications } from "../api/index.ts";
import { UsageError } from "./context.ts";

/** An algorithm, and where it was found. */
export interface OwnAlgorithm {
  readonly collective: SpecifiedCollective;
  readonly algorithm: Algorithm;
  /** The output of a command line. */
  readonly file: string;
  /** The option in which it did. */
  readonly option: string;
}

/** The worlds that it is judged for. */
export interface JudgedWorlds {
  readonly ranks: number;
  /** Those of its calls; they count only where the collective has one. */
  readonly roots: readonly number[];
}

/** Programs of more ranks take seconds to judge; algorithms that go wrong do so on fewer. */
const mostJudged = 1024;

/** So many ranks tell one collective from another. */
const [leastTelling, mostTelling] = [2, 8];

/** @throws InvalidArgumentError when it lacks what an algorithm needs; UsageError when it is whole for another collective. */
export function assertWhole(own: OwnAlgorithm): void {
  orElsewhere(own, mostTelling, () =>
    assertAlgorithm(own.collective, own.algorithm, `${whereOf(own)}: `),
  );
}

/**
 * Verifies an algorithm, and returns for how many ranks: half of them, and again half, where the program would be too
 * large. Halves stay powers of two where the ranks are one.
 *
 * @throws InvalidArgumentError when it is not sound; UsageError when it is sound for another collective.
 */
export function judge(own: OwnAlgorithm, { ranks, roots }: JudgedWorlds): number {
  let judged = ranks;
  while (judged > mostJudged) judged = Math.floor(judged / 2);
  for (;;) {
    try {
      orElsewhere(own, judged, () => assertSound(own, judged, roots));
      return judged;
    } catch (error) {
      if (!isTooLarge(error) || judged === 1) throw error;
      judged = Math.floor(judged / 2);
    }
  }
}

function assertSound(own: OwnAlgorithm, ranks: number, roots: readonly number[]): void {
  const { collective, algorithm } = own;
  const { rooted } = specifications[collective];
  const distinct = new Set(rooted ? roots.map((root) => Math.min(root, ranks - 1)) : [-1]);
  for (const root of distinct) {
    soundProgram(collective, algorithm, ranks, root, `${whereOf(own)}: `);
  }
}

/** Where something is wrong, another collective for which nothing is wrong is the likely mistake. */
function orElsewhere(own: OwnAlgorithm, ranks: number, assert: () => void): void {
  try {
    assert();
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    const telling = Math.min(Math.max(ranks, leastTelling), mostTelling);
    if (isSound(own, own.collective, telling)) throw error;
    const others = builtCollectives.filter((other) => isSound(own, other, telling));
    if (others.length === 0) throw error;
    const sound = `"${own.algorithm.name}" is sound as ${others.join(", ")}, not as ${own.collective}`;
    throw new UsageError(`${error.message}\n${sound}: name that collective, or mend the algorithm`);
  }
}

function isSound({ algorithm }: OwnAlgorithm, collective: SpecifiedCollective, ranks: number) {
  try {
    assertAlgorithm(collective, algorithm);
    soundProgram(collective, algorithm, ranks, specifications[collective].rooted ? 0 : -1);
    return true;
  } catch {
    return false;
  }
}

function whereOf({ option, file }: OwnAlgorithm): string {
  return `${option} ${file}`;
}
