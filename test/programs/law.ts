/** The laws of whole programs, and how many of what they were checked on. */
import fc from "fast-check";
import { sim } from "twinccl/sim";
import {
  checkProperty,
  communicatorsOf,
  type Program,
  programs,
  type RunOptions,
  runProgram,
  seeds,
} from "twinccl/testing";
import { judgeRun } from "../../src/testing/oracle/judge.ts";
import { randomWords, replay, runsOf } from "../support/seed.ts";

/** Counts of the checked programs. */
export interface Checked {
  readonly programs: number;
  readonly communicators: number;
  readonly calls: number;
  readonly seed: number;
}

/**
 * Ranks hold the results of an oracle without library code: random programs of exact contents. The resume order
 * differs from program to program.
 */
export function checkPrograms(usual: number, file: string): Promise<Checked> {
  return checkRuns(usual, file, (program) => {
    const resumeOrder = program.size + 31 * program.steps.length;
    return runProgram(sim({ seed: resumeOrder }), program);
  });
}

/**
 * Healthy programs raise no alarm, whatever their ranks do between the calls and however long one takes: no deadlock,
 * no mismatch, no misuse, no lent buffer that was written, no stall. The results are right too.
 */
export function checkNoAlarm(usual: number, file: string): Promise<Checked> {
  return checkRuns(usual, file, async (program, seed) => {
    const stalls: string[] = [];
    const run = await runProgram(sim({ seed, strict: true }), program, {
      pace: restless(seed),
      // Long for such a program, and short enough to report one that hangs.
      stallMs: 3000,
      onStall: ({ text }) => stalls.push(text),
    });
    if (stalls.length > 0) throw new Error(`a stall was reported: ${stalls[0]}`);
    return run;
  });
}

async function checkRuns(
  usual: number,
  file: string,
  run: (program: Program, seed: number) => ReturnType<typeof runProgram>,
): Promise<Checked> {
  const checked = { programs: 0, communicators: 0, calls: 0 };
  const law = async ([program, each]: readonly [Program, number]): Promise<void> => {
    const found = await run(program, each);
    judgeRun(program, found);
    checked.programs += 1;
    checked.communicators += communicatorsOf(program).length;
    checked.calls += found.outcomes.length;
  };
  const cases = fc.tuple(programs(), seeds());
  const command = `npx vitest run ${file}`;
  await checkProperty(cases, law, { ...replay, runs: runsOf(usual), command });
  return { ...checked, seed: replay.seed };
}

const sleep = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function microtasks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await undefined;
}

/** Ranks that dawdle before some steps; a third of the seeds leave them in peace. */
function restless(seed: number): NonNullable<RunOptions["pace"]> {
  const restlessness = seed % 3;
  return (rank, step) => {
    const next = randomWords(seed ^ Math.imul(rank + 1, 0x2545f491) ^ Math.imul(step + 1, 0x9e37));
    if (next() % 4 >= restlessness) return undefined;
    const kind = next() % 4;
    if (kind === 0) return sleep(next() % 3);
    return kind === 1 ? turn() : microtasks(next() % 9);
  };
}
