/**
 * The promise of the project as one law: the same program on two backends gives the same bits.
 *
 * Every subject runs the same random programs, and all results are compared as raw bytes. Exact payloads compare whatever
 * plans the subjects follow; arbitrary bits compare subjects of the same plan.
 */
import type { Backend } from "twinccl";
import {
  expectSame,
  type PayloadClass,
  type Program,
  type ProgramConstraints,
  type ProgramRun,
  programs,
  runProgram,
  runProgramIn,
} from "twinccl/testing";
import { afterAll, describe, expect, test } from "vitest";
import { OpenWorlds } from "../support/open-worlds.ts";
import { holds } from "../support/seed.ts";

/** Something that can run a program. */
export interface Subject {
  readonly name: string;
  readonly open: (size: number) => Backend;
  /** `any`: its results are compared for exact payloads; a plan's name: also for arbitrary bits, within that plan. */
  readonly plan: "any" | "ring" | "linear";
  /** The part of a program that it can run, for all subjects of its comparison; left out: all. */
  readonly takes?: (program: Program) => Program;
  /** One world of each size for all programs, where opening takes long. */
  readonly keepsWorlds?: boolean;
}

/** The number of programs by kind. */
export interface Extent {
  readonly runs: Readonly<Record<PayloadClass, number>>;
  readonly programs: Readonly<Record<PayloadClass, ProgramConstraints>>;
}

/** All tests of the law. */
export function identical(subjects: readonly Subject[], extent: Extent): void {
  const kept = new Map<Subject, OpenWorlds>();
  for (const subject of subjects) {
    if (subject.keepsWorlds === true) kept.set(subject, new OpenWorlds(subject.open));
  }
  afterAll(async () => {
    for (const worlds of kept.values()) await worlds.close();
  });

  function run(subject: Subject, program: Program): Promise<ProgramRun> {
    const { name: label, open } = subject;
    const { size } = program;
    const worlds = kept.get(subject);
    if (worlds === undefined) return runProgram(open(size), program, { label });
    return worlds.use(size, (world) => runProgramIn(world, program, { label }));
  }

  async function agree(drawn: Program, among: readonly Subject[]): Promise<void> {
    const program = among.reduce((each, { takes }) => takes?.(each) ?? each, drawn);
    const runs: ProgramRun[] = [];
    for (const subject of among) runs.push(await run(subject, program));
    const [norm, ...others] = runs;
    for (const found of others) expectSame(found, norm as ProgramRun);
  }

  describe("the same program gives the same bits", () => {
    test(`exact payloads on ${subjects.map(({ name }) => name).join(" = ")}`, async () => {
      const cases = programs({ ...extent.programs.exact, payload: "exact" });
      await holds(cases, (program) => agree(program, subjects), extent.runs.exact);
    });

    const plans = [...new Set(subjects.map(({ plan }) => plan))].filter((plan) => plan !== "any");
    test.each(plans)("arbitrary bits on every subject that follows the plan %s", async (plan) => {
      const among = subjects.filter((subject) => subject.plan === plan);
      expect(among.length).toBeGreaterThan(1);
      const cases = programs(extent.programs.bits);
      await holds(cases, (program) => agree(program, among), extent.runs.bits);
    });
  });
}
