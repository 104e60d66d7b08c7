/**
 * Where the properties get their randomness from: one seed, printed with every failure.
 *
 * CI uses the fixed one, so that a red build is red again on any machine. `TWINCCL_SEED=random` draws a new seed,
 * `TWINCCL_SEED=<n>` repeats one, `TWINCCL_RUNS=<n>` sets the number of cases of each law, and `TWINCCL_PATH=<path>`
 * goes straight to the shrunk counterexample. A failure prints the line that does all of this.
 */
import type fc from "fast-check";
import { checkProperty, environmentReplay, type Replay } from "twinccl/testing";
import { expect } from "vitest";

const { env } = process;
const { TWINCCL_RUNS, TWINCCL_SEED, TWINCCL_TESTS } = env;
if (TWINCCL_SEED === "random") {
  Object.assign(env, { TWINCCL_SEED: String(Math.floor(Math.random() * 0x7fffffff)) });
}

/** The seed of every property in this process, and where to begin. */
export const replay: Replay = environmentReplay();

/** True in `npm run test:rest`. */
export const isRest = TWINCCL_TESTS === "rest";

/** True in `npm run test:all` and in `test:rest`. */
export const isAll = isRest || TWINCCL_TESTS === "all";

/** The part of a law's cases that is drawn. */
export const partOfCases: number = isAll ? 1 : 1 / 20;

/** The number of cases of a law, unless `TWINCCL_RUNS` overrides it. A law of few cases keeps twice its part, one of many at most 25. */
export function runsOf(all: number): number {
  if (TWINCCL_RUNS === undefined) {
    const part = Math.ceil(all * partOfCases);
    return isAll ? part : Math.min(Math.max(part, Math.min(2 * part, 10)), 25);
  }
  const runs = Number(TWINCCL_RUNS);
  if (!Number.isSafeInteger(runs) || runs < 1) throw new Error(`TWINCCL_RUNS=${TWINCCL_RUNS}`);
  return runs;
}

/** Rows of a table of equal tests: `some` of them in `npm test`, all in `test:all`, the others in `test:rest`. */
export function partOf<T>(all: readonly T[], some: readonly T[]): readonly T[] {
  if (isRest) return all.filter((each) => !some.includes(each));
  return isAll ? all : some;
}

/** Rows of such a table: all of them, or every fifth. */
export function someOf<T>(rows: readonly T[]): readonly T[] {
  return isAll ? rows : rows.filter((_, at) => at % 5 === 1);
}

/** A number that depends on the seed and on what it is for, never on a shared stream. */
export function seedFor(...key: readonly number[]): number {
  let state = mix(replay.seed);
  for (const part of key) state = mix(state ^ Math.imul(part + 0x51ed270b, 0x9e3779b1));
  return state;
}

/** A source of 32 random bits a call, fixed by its seed. */
export function randomWords(from: number): () => number {
  let state = from | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    return mix(state);
  };
}

/** Checks a law on `usual` cases. Fails with the shrunk counterexample and one line that replays it. */
export async function holds<T>(
  arbitrary: fc.Arbitrary<T>,
  law: (value: T) => void | Promise<void>,
  usual: number,
): Promise<void> {
  const { testPath = "", currentTestName = "" } = expect.getState();
  const command = commandOf(testPath, currentTestName);
  await checkProperty(arbitrary, law, { ...replay, runs: runsOf(usual), command });
}

/** The command that runs one test, for a shell. Vitest takes the name as a pattern, suites and test with spaces. */
export function commandOf(path: string, test: string): string {
  const file = path.replace(/^.*\/(?=test\/)/, "");
  const name = test.replaceAll(" > ", " ").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return `npx vitest run${isAll ? " --mode all" : ""} ${file} -t '^${name.replaceAll("'", ".")}$'`;
}

function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}
