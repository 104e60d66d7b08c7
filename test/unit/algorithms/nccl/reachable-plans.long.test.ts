/** Every kind of plan that a simulated world takes from NCCL, by way of its own planner: verified, and folds proven. */
import type { DType, ReduceOp, SpecifiedCollective } from "twinccl";
import { describe, expect, test } from "vitest";
import type { Plan, Planner, PlanQuestion } from "../../../../src/algorithms/plans/plan.ts";
import { type PlanOptions, plannersOf } from "../../../../src/algorithms/plans/planners.ts";
import { specifications } from "../../../../src/api/index.ts";
import { planProblems } from "../../../support/plan-problems.ts";

/** One of each size; sums of the floats below 8 bytes have symmetric kernels. */
const dtypes: readonly DType[] = ["float8e4m3", "bfloat16", "float32", "float64"];
const counts = [0, 1, 7, 1023, 4097, 300_007];
const operators: readonly ReduceOp[] = ["sum", "avg", "max", { preMul: 0.3 }];
const collectives = ["allReduce", "reduceScatter", "reduce", "allGather", "broadcast"] as const;

/** Aligned; a prefix on both sides; sides apart by 4 bytes and by less. */
const places = [
  { send: 0, recv: 0 },
  { send: 12, recv: 12 },
  { send: 8, recv: 4 },
  { send: 0, recv: 2 },
];

const settings: readonly PlanOptions[] = [
  {},
  ...(["LL", "LL128", "Simple"] as const).map((protocol): PlanOptions => {
    return { like: "nccl-2.28", plan: { protocol, maxChannels: 5, buffSize: 65_536 } };
  }),
  { like: "nccl-2.28", plan: { minChannels: 40, llBuffSize: 32_768 } },
];

/** Judges plans that it has not seen. */
class Judge {
  readonly names = new Set<string>();
  readonly problems: string[] = [];
  readonly #seen = new Set<unknown>();

  judge(plan: Plan, { collective, count }: PlanQuestion): void {
    const { program, fused } = plan;
    // Operators and types share most programs.
    const layout = plan.layout({ count });
    const { offsets } = layout.out[Math.max(0, program.root)] ?? { offsets: [] };
    const key = `${collective} ${program.root} ${plan.name} ${count} ${offsets.join()}`;
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    this.names.add(`${collective} ${plan.name}`);
    expect(plan.claim).toMatch(/^the same bits as NCCL|^no call/);
    this.problems.push(...planProblems({ program, fused, layout, count }));
  }
}

function question(
  collective: SpecifiedCollective,
  ranks: number,
  dtype: DType,
  count: number,
): PlanQuestion {
  const { rooted } = specifications[collective];
  const root = rooted ? (count + ranks) % ranks : -1;
  return { collective, ranks, root, dtype, count, op: undefined, ordered: true, place: undefined };
}

function plannerOf(options: PlanOptions, ranks: number): Planner {
  return plannersOf(options)(ranks);
}

describe.each([2, 3, 4, 5, 6, 7, 8])("%i ranks", (ranks) => {
  test.each(settings)("on channels, set up as %j", (options) => {
    const judge = new Judge();
    const planner = plannerOf(options, ranks);
    for (const collective of collectives) {
      const { reduces } = specifications[collective];
      for (const dtype of dtypes) {
        for (const count of counts) {
          const op = reduces ? operators[count % operators.length] : undefined;
          const request = { ...question(collective, ranks, dtype, count), op };
          judge.judge(planner.of(request), request);
        }
      }
    }
    expect(judge.problems.slice(0, 5)).toEqual([]);
    for (const collective of collectives) {
      expect([...judge.names].some((name) => name.startsWith(`${collective} Ring`))).toBe(true);
    }
  });

  test("down chains", () => {
    const judge = new Judge();
    for (const protocol of ["LL", "LL128", "Simple"] as const) {
      const plan = { algorithm: "Tree", protocol, buffSize: 65_536 } as const;
      const planner = plannerOf({ like: "nccl-2.28", plan }, ranks);
      for (const dtype of dtypes) {
        for (const count of counts) {
          const request = { ...question("allReduce", ranks, dtype, count), op: "prod" as const };
          judge.judge(planner.of(request), request);
        }
      }
    }
    expect(judge.problems.slice(0, 5)).toEqual([]);
    expect([...judge.names].sort()).toEqual([
      "allReduce Tree LL",
      "allReduce Tree LL128",
      "allReduce Tree Simple",
    ]);
  });

  test("through symmetric memory", () => {
    const judge = new Judge();
    const planner = plannerOf({}, ranks);
    for (const collective of ["allReduce", "reduceScatter"] as const) {
      for (const dtype of dtypes) {
        for (const count of counts) {
          for (const place of places) {
            const request = {
              ...question(collective, ranks, dtype, count),
              op: "sum" as const,
              place,
            };
            judge.judge(planner.of(request), request);
          }
        }
      }
    }
    expect(judge.problems.slice(0, 5)).toEqual([]);
    const symmetric = [...judge.names].filter((name) => name.includes("Symmetric")).sort();
    expect(symmetric).toEqual([
      "allReduce Symmetric LD",
      "allReduce Symmetric LL",
      "reduceScatter Symmetric LD",
      "reduceScatter Symmetric LL",
    ]);
  });
});

test.each(collectives)("%s of one rank", (collective) => {
  const judge = new Judge();
  const planner = plannerOf({}, 1);
  for (const count of [0, 1, 1000]) {
    const op = specifications[collective].reduces ? ("avg" as const) : undefined;
    for (const place of [undefined, places[1]]) {
      const request = { ...question(collective, 1, "float32", count), op, place };
      judge.judge(planner.of(request), request);
    }
  }
  expect(judge.problems).toEqual([]);
  expect([...judge.names]).toEqual([`${collective} Copy`]);
});
