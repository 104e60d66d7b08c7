/**
 * The promise of the project as one law: the same program on two backends gives the same bits.
 *
 * Every row of `subjects` runs the same random programs, and all results are compared as raw bytes. Exact payloads
 * compare whatever plans the subjects follow; arbitrary bits compare subjects of the same plan.
 */

import type { Backend } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { comparable, firstDifference } from "../support/element-bits.ts";
import type { PayloadClass } from "../support/payload.ts";
import { type Outcome, runProgram, type TestProgram } from "../support/program.ts";
import { holds } from "../support/seed.ts";
import { programs } from "./arbitraries.ts";

/** Something that can run a program. */
interface Subject {
  readonly name: string;
  readonly open: (size: number) => Backend;
  /** `any`: its results are compared for exact payloads; a plan's name: also for arbitrary bits, within that plan. */
  readonly plan: "any" | "ring" | "linear";
  /** Programs it can run; left out: all. */
  readonly admits?: (program: TestProgram) => boolean;
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

async function agree(program: TestProgram, among: readonly Subject[]): Promise<void> {
  const able = among.filter(({ admits }) => admits?.(program) ?? true);
  const [first, ...others] = able;
  if (first === undefined) return;
  const norm = await runProgram(first.open(program.size), program);
  for (const subject of others) {
    const found = await runProgram(subject.open(program.size), program);
    const difference = differenceOf(program, found, norm);
    if (difference !== undefined) {
      throw new Error(`${subject.name} differs from ${first.name}: ${difference}`);
    }
  }
}

function differenceOf(program: TestProgram, found: Outcome, norm: Outcome): string | undefined {
  for (const [at, call] of program.calls.entries()) {
    if (call.kind === "barrier") continue;
    for (let rank = 0; rank < program.size; rank++) {
      const a = found[at]?.[rank];
      const b = norm[at]?.[rank];
      expect([a?.recvCounts, a?.recvOffsets]).toEqual([b?.recvCounts, b?.recvOffsets]);
      const same = (bytes: Uint8Array = new Uint8Array(0)): Uint8Array => {
        if (call.kind !== "allReduce" || program.size === 1) return bytes;
        const { op } = call;
        return comparable(call.dtype, op === "min" || op === "max" ? op : "other", bytes);
      };
      const difference = firstDifference(call.dtype, same(a?.bytes), same(b?.bytes));
      if (difference !== undefined) {
        return `call ${at} (${call.kind} ${call.dtype}), rank ${rank}, ${difference}`;
      }
    }
  }
  return undefined;
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
