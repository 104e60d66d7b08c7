/**
 * The promise of the project as one law: the same program on two backends gives the same bits.
 *
 * Every row of `subjects` runs the same random programs, and all results are compared as raw bytes. Exact payloads
 * compare whatever plans the subjects follow; arbitrary bits compare subjects of the same plan.
 */

import type { Backend } from "twinccl";
import { sim } from "twinccl/sim";
import {
  expectSame,
  type PayloadClass,
  type Program,
  type ProgramRun,
  programs,
  runProgram,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { holds } from "../support/seed.ts";

/** Something that can run a program. */
interface Subject {
  readonly name: string;
  readonly open: (size: number) => Backend;
  /** `any`: its results are compared for exact payloads; a plan's name: also for arbitrary bits, within that plan. */
  readonly plan: "any" | "ring" | "linear";
  /** Programs it can run; left out: all. */
  readonly admits?: (program: Program) => boolean;
}

/** A new backend, executor or recording is one more row. */
const subjects: readonly Subject[] = [
  { name: "sim ring", plan: "ring", open: () => sim() },
  { name: "sim ring, seed 1", plan: "ring", open: () => sim({ seed: 1 }) },
  { name: "sim ring, seed per size", plan: "ring", open: (size) => sim({ seed: -977 * size }) },
  { name: "sim linear", plan: "linear", open: () => sim({ algorithms: { allReduce: "linear" } }) },
  {
    name: "sim linear, other resume order",
    plan: "linear",
    open: () => sim({ seed: 0xfedcba, algorithms: { allReduce: "linear" } }),
  },
];

const runs: Readonly<Record<PayloadClass, number>> = { exact: 250, bits: 350 };

async function agree(program: Program, among: readonly Subject[]): Promise<void> {
  const able = among.filter(({ admits }) => admits?.(program) ?? true);
  const runs: ProgramRun[] = [];
  for (const { name, open } of able) {
    runs.push(await runProgram(open(program.size), program, { label: name }));
  }
  const [norm, ...others] = runs;
  for (const found of others) expectSame(found, norm as ProgramRun);
}

describe("the same program gives the same bits", () => {
  test(`exact payloads on ${subjects.map(({ name }) => name).join(" = ")}`, async () => {
    await holds(programs({ payload: "exact" }), (program) => agree(program, subjects), runs.exact);
  });

  const plans = [...new Set(subjects.map(({ plan }) => plan))].filter((plan) => plan !== "any");
  test.each(plans)("arbitrary bits on every subject that follows the plan %s", async (plan) => {
    const among = subjects.filter((subject) => subject.plan === plan);
    expect(among.length).toBeGreaterThan(1);
    await holds(programs({ payload: "bits" }), (program) => agree(program, among), runs.bits);
  });
});
