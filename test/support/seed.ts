/**
 * Where the properties get their randomness from: one seed, printed with every failure.
 *
 * CI uses the fixed one, so that a red build is red again on any machine. `TWINCCL_SEED=random` draws a new seed,
 * `TWINCCL_SEED=<n>` repeats one, `TWINCCL_RUNS=<n>` changes how many cases each law gets, and `TWINCCL_PATH=<path>`
 * goes straight to the shrunk counterexample. A failure prints the line that does all of this.
 */
import fc from "fast-check";
import { expect } from "vitest";

const { TWINCCL_SEED, TWINCCL_RUNS, TWINCCL_PATH } = process.env;

/** The seed of every property in this process. */
const seed = seedOf(TWINCCL_SEED);

/** How many cases a law gets, unless `TWINCCL_RUNS` says otherwise. */
function runsOf(usual: number): number {
  if (TWINCCL_RUNS === undefined) return usual;
  const runs = Number(TWINCCL_RUNS);
  if (!Number.isSafeInteger(runs) || runs < 1) throw new Error(`TWINCCL_RUNS=${TWINCCL_RUNS}`);
  return runs;
}

/** A number that depends on the seed and on what it is for, never on a shared stream. */
export function seedFor(...key: readonly number[]): number {
  let state = mix(seed);
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
  const property = fc.asyncProperty(arbitrary, async (value) => law(value));
  const path = TWINCCL_PATH === undefined ? {} : { path: TWINCCL_PATH };
  const details = await fc.check(property, { seed, numRuns: runsOf(usual), ...path });
  if (!details.failed) return;
  const { counterexamplePath, counterexample, errorInstance, numShrinks } = details;
  const cause = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  const shrunk = fc.stringify(counterexample?.[0]);
  throw new Error(
    `${cause}\n\nafter ${numShrinks} shrinks: ${shrunk}\nreplay: ${replayLine(counterexamplePath)}`,
    { cause: errorInstance },
  );
}

function replayLine(path: string | null): string {
  const { testPath = "", currentTestName = "" } = expect.getState();
  const file = testPath.replace(/^.*?\/(?=test\/)/, "");
  const variables = `TWINCCL_SEED=${seed}${path === null ? "" : ` TWINCCL_PATH=${path}`}`;
  return `${variables} npx vitest run ${file} -t ${JSON.stringify(currentTestName.split(" > ").at(-1))}`;
}

function seedOf(text: string | undefined): number {
  if (text === undefined) return 0x2717cc1;
  if (text === "random") return Math.floor(Math.random() * 0x7fffffff);
  const given = Number(text);
  if (!Number.isSafeInteger(given)) throw new Error(`TWINCCL_SEED=${text} is no integer`);
  return given;
}

function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}
