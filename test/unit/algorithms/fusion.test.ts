/** The proof that folds compute what the program computes can fail: a plan that was tampered with is found. */

import {
  buildProgram,
  catalogue,
  type FusedFold,
  type FusedPlan,
  fuse,
  type Operand,
  proveFusion,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const ringProgram = buildProgram("allReduce", catalogue.allReduce.ring, 4, -1);
const linearProgram = buildProgram("allReduce", catalogue.allReduce.linear, 4, -1);
const exchangeProgram = buildProgram("allToAll", catalogue.allToAll.pairwise, 3, -1);

/** The plan with its first fold changed. */
function tampered(plan: FusedPlan, change: (fold: FusedFold) => FusedFold): FusedPlan {
  const [group, ...groups] = plan.groups;
  const [fold, ...folds] = group as readonly FusedFold[];
  return { ...plan, groups: [[change(fold as FusedFold), ...folds], ...groups] };
}

function moved(operand: Operand, rank: number): Operand {
  return operand.kind === "fold" ? operand : { ...operand, place: { ...operand.place, rank } };
}

const changes: readonly (readonly [string, (fold: FusedFold) => FusedFold])[] = [
  [
    "two operands swapped",
    (fold) => {
      const [a, b, c, ...rest] = fold.operands as [Operand, Operand, Operand];
      return { ...fold, operands: [a, c, b, ...rest] };
    },
  ],
  ["an operand left out", (fold) => ({ ...fold, operands: fold.operands.slice(0, -1) })],
  [
    "an operand twice",
    (fold) => ({ ...fold, operands: [...fold.operands, fold.operands[0] as Operand] }),
  ],
  [
    "an operand of another rank",
    (fold) => ({
      ...fold,
      operands: fold.operands.map((operand, at) => (at === 3 ? moved(operand, 1) : operand)),
    }),
  ],
  [
    "another chunk",
    (fold) => ({
      ...fold,
      operands: fold.operands.map((operand) =>
        operand.kind === "fold" ? operand : { ...operand, place: { ...operand.place, chunk: 1 } },
      ),
    }),
  ],
  ["not completed", (fold) => ({ ...fold, final: false })],
  ["a target left out", (fold) => ({ ...fold, targets: fold.targets.slice(1) })],
  [
    "a target on another rank's chunk",
    (fold) => ({
      ...fold,
      targets: fold.targets.map((target, at) => (at === 0 ? { ...target, chunk: 3 } : target)),
    }),
  ],
];

describe("fusion", () => {
  test.each([ringProgram, linearProgram, exchangeProgram])("of $algorithm is proven", (program) => {
    expect(proveFusion(program, fuse(program))).toEqual([]);
  });

  test.each(changes)("of a ring is refuted when tampered with: %s", (_, change) => {
    const problems = proveFusion(ringProgram, tampered(fuse(ringProgram), change));
    expect(problems.length).toBeGreaterThan(0);
    for (const { pass } of problems) expect(pass).toBe("fusion");
  });

  test("is refuted when a direct contribution is taken as a partial, or the other way round", () => {
    const flip = (fold: FusedFold): FusedFold => ({
      ...fold,
      operands: fold.operands.map((operand, at): Operand => {
        if (at === 0 || operand.kind === "fold") return operand;
        return { ...operand, kind: operand.kind === "partial" ? "contribution" : "partial" };
      }),
    });
    for (const program of [ringProgram, linearProgram]) {
      expect(proveFusion(program, tampered(fuse(program), flip))).not.toEqual([]);
    }
  });

  test("is refuted when a group is missing", () => {
    const plan = fuse(exchangeProgram);
    const problems = proveFusion(exchangeProgram, { ...plan, groups: plan.groups.slice(1) });
    expect(problems.map(({ text }) => text)).toEqual(["8 of 9 output chunks are covered"]);
  });

  test("reports the plans that may run in place unchanged", () => {
    expect(fuse(ringProgram).inPlaceSafe).toBe(true);
    expect(fuse(linearProgram).inPlaceSafe).toBe(true);
  });
});
