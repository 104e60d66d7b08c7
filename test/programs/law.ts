/** The law of whole programs: what ranks hold is what an oracle without library code says. */
import { sim } from "twinccl/sim";
import {
  checkProperty,
  environmentReplay,
  type Program,
  programs,
  runProgram,
} from "twinccl/testing";
import { judgeRun } from "../support/program-oracle.ts";

/** What was checked. */
export interface Checked {
  readonly programs: number;
  readonly calls: number;
  readonly seed: number;
}

/** Runs random programs of exact contents and judges them; the resume order differs from program to program. */
export async function checkPrograms(usual: number, file: string): Promise<Checked> {
  const { TWINCCL_RUNS } = process.env;
  const runs = TWINCCL_RUNS === undefined ? usual : Number(TWINCCL_RUNS);
  const { seed, path } = environmentReplay();
  let calls = 0;
  let ran = 0;
  const law = async (program: Program): Promise<void> => {
    const resumeOrder = program.size + 31 * program.steps.length;
    const run = await runProgram(sim({ seed: resumeOrder }), program);
    judgeRun(program, run);
    ran += 1;
    calls += run.outcomes.length;
  };
  await checkProperty(programs(), law, { seed, path, runs, command: `npx vitest run ${file}` });
  return { programs: ran, calls, seed };
}
