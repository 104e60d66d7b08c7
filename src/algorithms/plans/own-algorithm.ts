/** Algorithms that a caller wrote: judged before anything runs by them. */
import {
  CommError,
  InvalidArgumentError,
  type SpecifiedCollective,
  specifications,
} from "../../api/index.ts";
import { type Algorithm, buildProgram } from "../algorithm.ts";
import type { Program } from "../program.ts";
import { verifyProgram } from "../verify/verify.ts";

/** So many problems are told of one that is not sound. */
const mostProblems = 8;

/**
 * Refuses what is no algorithm. `where` says in which option or file it stands.
 *
 * @throws InvalidArgumentError that names the first field that is missing.
 */
export function assertAlgorithm(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  where = `sim: algorithms.${collective}.`,
): void {
  const needs: Readonly<Partial<Record<keyof Algorithm, "string" | "function">>> = {
    ...{ name: "string", summary: "string", credits: "function", chunksPerBlock: "function" },
    ...{ cost: "function", write: "function" },
    ...(specifications[collective].reduces && { order: "function" }),
  };
  for (const [key, type] of Object.entries(needs)) {
    const found = typeof Reflect.get(algorithm, key);
    if (found === type) continue;
    throw new InvalidArgumentError(
      {
        headline: `${where}${key}: found ${found}, needs a ${type}`,
        hint: "docs/algorithms.md tells how to write an algorithm",
      },
      { field: `algorithms.${collective}` },
    );
  }
}

/**
 * The program of a caller's algorithm, which is verified first: what it leaves out would be wrong results, or a deadlock.
 * `where` says in which option or file it stands.
 *
 * @throws InvalidArgumentError when it is not sound, or cannot be written for so many ranks.
 */
export function soundProgram(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root: number,
  where = `sim: algorithms.${collective}: `,
): Program {
  const what = `${where}"${algorithm.name}"`;
  const field = `algorithms.${collective}`;
  const on = `${ranks === 1 ? "1 rank" : `${ranks} ranks`}${root < 0 ? "" : `, root ${root}`}`;
  try {
    const program = buildProgram(collective, algorithm, ranks, root);
    const { problems } = verifyProgram(program, algorithm);
    if (problems.length === 0) return program;
    throw new InvalidArgumentError(
      {
        headline: `${what} is not sound on ${on}`,
        table: problems.slice(0, mostProblems).map(({ pass, text }) => [pass, text]),
        hint: "verifyAlgorithm() of twinccl/algorithms tells all that is wrong with it",
      },
      { field, collective, size: ranks },
    );
  } catch (error) {
    if (error instanceof CommError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const headline = `${what} cannot be written for ${on}: ${why.split("\n", 1)[0]}`;
    throw new InvalidArgumentError({ headline }, { field, collective, size: ranks, cause: error });
  }
}
