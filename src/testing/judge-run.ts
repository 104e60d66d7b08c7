/** The oracle of whole programs, with checked arguments: the oracle imports no value of the library. */
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertRun } from "./argument-checks.ts";
import { type FoldOracle, judgeRun as judge } from "./oracle/judge.ts";
import type { Program } from "./program.ts";
import { assertProgram } from "./program-checks.ts";
import type { ProgramRun } from "./run-program.ts";

/**
 * Judges a run of a program with exact contents by an oracle of its own, which shares no code with the library. With `fold` it
 * judges any contents.
 *
 * @throws Error naming the first call, rank and element that differ from what the program requires. InvalidArgumentError for
 * what is no program, no run or no function.
 * @example
 * judgeRun(program, await runProgram(backend, program));
 */
export function judgeRun(program: Program, run: ProgramRun, fold?: FoldOracle): void {
  assertProgram("judgeRun", program);
  assertRun("judgeRun", "run", run);
  if (fold !== undefined && typeof fold !== "function") {
    throw invalid("judgeRun", "fold", textOf(fold), "a function");
  }
  judge(program, run, fold);
}
