/** Every plan as a program: the verifier's judgement, and the direct folds proven equal to it. */
import { describe, expect, test } from "vitest";
import { proveFusion } from "../../../../src/algorithms/index.ts";
import type { NcclPlan, PlanRequest } from "../../../../src/algorithms/nccl/plan-types.ts";
import { ncclFused, ncclLayout, ncclProgram } from "../../../../src/algorithms/nccl/program.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import { chainTree, h200x8, type Topology } from "../../../../src/algorithms/nccl/topology.ts";
import { planProblems } from "../../../support/plan-problems.ts";
import { isAll } from "../../../support/seed.ts";

const small = { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 };
const collectives: readonly NcclCollective[] = [
  "allReduce",
  "reduceScatter",
  "reduce",
  "allGather",
  "broadcast",
];

function problemsOf(plan: NcclPlan): string[] {
  const { count } = plan;
  const [program, fused, layout] = [ncclProgram(plan), ncclFused(plan), ncclLayout(plan)];
  return planProblems({ program, fused, layout, count });
}

function request(topology: Topology, collective: NcclCollective, count: number): PlanRequest {
  const reduces = collective !== "allGather" && collective !== "broadcast";
  const op = reduces ? ("sum" as const) : undefined;
  const root = topology.ranks - 1 - (count % topology.ranks);
  return { version: "2.28", topology, collective, dtype: "float32", op, count, root };
}

/** Rings and chains that are no identity, and differ between channels. */
function shuffled(ranks: number): Topology {
  const base = h200x8(ranks);
  const channels = base.channels.map((_, channel) => {
    const rest = Array.from({ length: ranks - 1 }, (_, i) => 1 + ((i + channel) % (ranks - 1)));
    if (channel % 2 === 1) rest.reverse();
    const ring = [0, ...rest];
    return { ring, tree: chainTree([...ring].reverse().map((rank) => (rank + channel) % ranks)) };
  });
  return { ...base, name: "shuffled", channels };
}

describe.each(isAll ? [2, 3, 4, 5, 6, 7, 8] : [5])("%i ranks", (n) => {
  const counts = [0, 1, 5, 1023, 4097, 100_003, 262_144];
  /** In `npm test` each count on one of the topologies. */
  const shapes = [h200x8(n), shuffled(n)]
    .flatMap((topology) => counts.map((count) => ({ topology, count })))
    .filter((_, at) => isAll || at % 2 === 0);

  test.each(collectives)("%s by Ring", (collective) => {
    const problems = shapes.flatMap(({ topology, count }) =>
      (["LL", "LL128", "Simple"] as const).flatMap((protocol) =>
        problemsOf(
          ncclPlan({
            ...request(topology, collective, count),
            forced: { algorithm: "Ring", protocol },
          }),
        ),
      ),
    );
    expect(problems.slice(0, 5)).toEqual([]);
  });

  test.each(collectives)("%s with many loops in a channel", (collective) => {
    const settings = { ...small, maxChannels: 2 };
    const plan = ncclPlan({ ...request(shuffled(n), collective, 100_003), settings });
    expect(plan.pieces.length).toBeGreaterThan(10);
    expect(problemsOf(plan).slice(0, 5)).toEqual([]);
  });

  test("allReduce by Tree", () => {
    const problems = shapes.flatMap(({ topology, count }) =>
      (["LL", "LL128", "Simple"] as const).flatMap((protocol) =>
        [{}, small].flatMap((settings) =>
          problemsOf(
            ncclPlan({
              ...request(topology, "allReduce", count),
              settings,
              forced: { algorithm: "Tree", protocol },
            }),
          ),
        ),
      ),
    );
    expect(problems.slice(0, 5)).toEqual([]);
  });

  test("symmetric kernels", () => {
    const kernels = new Set<string>();
    const problems = (["allReduce", "reduceScatter"] as const).flatMap((collective) =>
      counts.flatMap((count) => {
        const plan = ncclPlan({
          ...request(h200x8(n), collective, count),
          symmetric: { send: 12, recv: 12 },
        });
        kernels.add(`${collective} ${plan.algorithm} ${plan.protocol}`);
        return problemsOf(plan);
      }),
    );
    expect(problems.slice(0, 5)).toEqual([]);
    expect([...kernels].sort()).toEqual([
      "allReduce Symmetric LD",
      "allReduce Symmetric LL",
      "reduceScatter Symmetric LD",
      "reduceScatter Symmetric LL",
    ]);
  });
});

test.each(collectives)("%s of one rank is a copy", (collective) => {
  const plan = ncclPlan(request(h200x8(1), collective, 1000));
  expect(plan.algorithm).toBe("Copy");
  expect(problemsOf(plan)).toEqual([]);
});

test("the proof notices a wrong order", () => {
  const plan = ncclPlan(request(h200x8(4), "allReduce", 1000));
  const program = ncclProgram(plan);
  const wrong = ncclFused({
    ...plan,
    pieces: plan.pieces.map((piece) => ({ ...piece, order: [...piece.order].reverse() })),
  });
  expect(proveFusion(program, wrong).length).toBeGreaterThan(0);
});

test("a large call is planned without looking at its elements", () => {
  const plan = ncclPlan({
    ...request(h200x8(8), "allReduce", 2 ** 28),
    forced: { algorithm: "Ring", protocol: "LL" },
  });
  const fused = ncclFused(plan);
  const { in: tables } = ncclLayout(plan);
  ncclProgram(plan);
  expect(fused.groups.length).toBe(plan.pieces.length);
  expect(plan.pieces.length).toBeLessThan(33_000);
  for (const { lengths } of tables) expect(lengths.length).toBe(plan.pieces.length);
});
