/** The law of whole programs, and how many of what it was checked on. */
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
 * Random programs of exact contents: their ranks hold the results of an oracle without library code, and no alarm is raised,
 * whatever they do between the calls and however long one takes: no deadlock, no mismatch, no misuse, no stall, and in every
 * other program no lent buffer that was written. The resume order differs from program to program.
 */
export async function checkPrograms(usual: number, file: string): Promise<Checked> {
  const checked = { programs: 0, communicators: 0, calls: 0 };
  const law = async ([program, seed]: readonly [Program, number]): Promise<void> => {
    const stalls: string[] = [];
    const run = await runProgram(sim({ seed, strict: seed % 2 === 0 }), program, {
      pace: restless(seed),
      // Long for such a program, and short enough to report one that hangs.
      stallMs: 3000,
      onStall: ({ text }) => stalls.push(text),
    });
    if (stalls.length > 0) throw new Error(`a stall was reported: ${stalls[0]}`);
    judgeRun(program, run);
    checked.programs += 1;
    checked.communicators += communicatorsOf(program).length;
    checked.calls += run.outcomes.length;
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
