/** Plans over hosts of one GPU: trees, PAT's order against NCCL's own schedule, programs and folds. */
import { describe, expect, test } from "vitest";
import { doubleTree } from "../../../../src/algorithms/nccl/connect.ts";
import type { FoldOrder } from "../../../../src/algorithms/nccl/fold-order.ts";
import { orderText } from "../../../../src/algorithms/nccl/fold-order.ts";
import { machineOf, topologies } from "../../../../src/algorithms/nccl/machines.ts";
import type { NcclPlan, PlanRequest } from "../../../../src/algorithms/nccl/plan-types.ts";
import { ncclFused, ncclLayout, ncclProgram } from "../../../../src/algorithms/nccl/program.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import { planProblems } from "../../../support/plan-problems.ts";
import { isAll, partOf } from "../../../support/seed.ts";

function request(hosts: number, collective: NcclCollective, count: number): PlanRequest {
  const reduces = collective !== "allGather" && collective !== "broadcast";
  const topology = topologies["h200-hosts"](hosts);
  const root = hosts - 1 - (count % hosts);
  const op = reduces ? ("sum" as const) : undefined;
  return { version: "2.28", topology, collective, dtype: "float32", op, count, root };
}

function problemsOf(plan: NcclPlan): string[] {
  const [program, fused, layout] = [ncclProgram(plan), ncclFused(plan), ncclLayout(plan)];
  return planProblems({ program, fused, layout, count: plan.count });
}

const sizes = partOf([2, 3, 4, 5, 6, 7, 8, 11, 16, 24, 32, 33, 64], [2, 3, 7, 16, 33]);

describe.each(sizes)("%i hosts", (hosts) => {
  const collectives = ["allReduce", "reduceScatter", "reduce", "allGather", "broadcast"] as const;
  test.each(collectives)("%s by NCCL's choice", (collective) => {
    const problems = [0, 1, 5, 1023, 40_009].flatMap((count) =>
      problemsOf(ncclPlan(request(hosts, collective, count))),
    );
    expect(problems.slice(0, 3)).toEqual([]);
  });

  test.each(["LL", "LL128", "Simple"] as const)("allReduce by Tree over %s", (protocol) => {
    const forced = { algorithm: "Tree", protocol } as const;
    const settings = { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 };
    const problems = [1, 4097, 40_009].flatMap((count) =>
      problemsOf(ncclPlan({ ...request(hosts, "allReduce", count), forced, settings })),
    );
    expect(problems.slice(0, 3)).toEqual([]);
  });

  test.each(["reduceScatter", "allGather"] as const)("%s by PAT", (collective) => {
    const forced = { algorithm: "PAT", protocol: "Simple" } as const;
    const problems = [1, 4097, 40_009].flatMap((count) =>
      problemsOf(ncclPlan({ ...request(hosts, collective, count), forced })),
    );
    expect(problems.slice(0, 3)).toEqual([]);
  });
});

test("trees of 4 and of 5 hosts", () => {
  const [a4, b4] = doubleTree(4);
  expect(a4).toEqual({ root: 0, children: [[2], [], [1, 3], []] });
  expect(b4).toEqual({ root: 3, children: [[], [2, 0], [], [1]] });
  const [a5, b5] = doubleTree(5);
  expect(a5).toEqual({ root: 0, children: [[4], [], [1, 3], [], [2]] });
  expect(b5).toEqual({ root: 1, children: [[3], [0], [], [2, 4], []] });
});

/** NCCL's trees by the rule of parents, independent of the rule of children. */
function parentOf(rank: number, ranks: number): number {
  const bit = rank & -rank;
  const up = (rank ^ bit) | (bit << 1);
  return up >= ranks ? rank ^ bit : up;
}

test("children agree with NCCL's rule of parents", () => {
  for (let ranks = 2; ranks <= 130; ranks++) {
    const [{ children }] = doubleTree(ranks);
    const parents = new Map(children.flatMap((of, rank) => of.map((child) => [child, rank])));
    for (let rank = 1; rank < ranks; rank++) expect(parents.get(rank)).toBe(parentOf(rank, ranks));
  }
});

test("half of the channels have tree A, the others tree B; one channel has tree A", () => {
  const call = {
    ...request(4, "allReduce", 8_000),
    forced: { algorithm: "Tree", protocol: "LL" },
  };
  const orders = (settings = {}): string[] =>
    ncclPlan({ ...call, settings } as PlanRequest).pieces.map(({ order }) => orderText(order, " "));
  expect(orders()).toEqual(["r1 r2 r3 r0", "r2 r1 r0 r3"]);
  expect(orders({ maxChannels: 1 })).toEqual(["r1 r2 r3 r0"]);
});

test("a rank of a tree folds its first child, itself, then its other child", () => {
  const plan = ncclPlan({ ...request(16, "allReduce", 100), forced: { algorithm: "Tree" } });
  expect(orderText(plan.pieces[0]?.order ?? [], " ")).toBe(
    "r1 r2 r3 r4 (r5 r6 r7) r8 (r9 r10 r11 r12 (r13 r14 r15)) r0",
  );
});

test("PAT folds neighbours last", () => {
  const orders = (hosts: number): string => {
    const forced = { algorithm: "PAT" } as const;
    const { pieces } = ncclPlan({ ...request(hosts, "reduceScatter", 1), forced });
    return orderText(pieces[0]?.order ?? [], " ");
  };
  expect(orders(4)).toBe("r1 r2 r0 r3");
  expect(orders(8)).toBe("r5 r6 r0 (r1 r2 r4 r3) r7");
});

/** The values of a schedule of NCCL as texts: PatRSAlgorithm of its collectives.h, run for every rank side by side. */
function patByNccl(ranks: number, chunkBytes: number, partBytes: number): string[] {
  const schedule = patSteps(ranks, chunkBytes, partBytes);
  // By rank and distance: the value so far. Every rank has the same schedule.
  const held = Array.from({ length: ranks }, () => new Map<number, string>());
  const sent = Array.from({ length: ranks }, () => new Map<number, string>());
  for (const { distance, from } of schedule) {
    for (let rank = 0; rank < ranks; rank++) {
      const values = held[rank] as Map<number, string>;
      const own = values.get(distance) ?? `${rank}`;
      const received = from === undefined ? undefined : sent[(rank - from + ranks) % ranks];
      const value = received?.get(distance + (from as number));
      values.set(distance, value === undefined ? own : [value, own].sort().join("+"));
      if (value !== undefined) values.set(distance, `(${values.get(distance)})`);
    }
    held.forEach((values, rank) => {
      for (const [key, value] of values) sent[rank]?.set(key, value);
    });
  }
  return held.map((values) => values.get(0) as string);
}

interface PatStep {
  /** The distance behind the block's rank that this step adds to. */
  readonly distance: number;
  /** The distance that the step receives from, if any. */
  readonly from: number | undefined;
}

/** The steps that NCCL's getNextOp generates for one chunk. */
function patSteps(ranks: number, chunkBytes: number, partBytes: number): PatStep[] {
  const power = 2 ** Math.ceil(Math.log2(ranks));
  let [factor, delta] = [1, power];
  while (Math.floor(chunkBytes / (partBytes * factor)) >= 2 && factor < Math.floor(ranks / 2)) {
    [factor, delta] = [factor * 2, delta / 2];
  }
  for (let depth = 8; depth > 1 && factor < Math.floor(ranks / 2); depth /= 2) {
    [factor, delta] = [factor * 2, delta / 2];
  }
  const mirrored = (i: number, most: number): number => {
    let result = 0;
    for (let mask = 1, image = most >> 1; mask < most; mask <<= 1, image >>= 1) {
      if ((i & mask) === 0) result += image;
    }
    return result;
  };
  const lowest = (s: number): number => s & -s;
  const steps: PatStep[] = [];
  let [phase, scale, at] = [0, 1, delta - 1];
  while (phase !== 5) {
    const last = phase === 4 ? 1 : phase >= 2 ? factor / (2 * scale) : factor;
    for (let a = 0; a < last; a++) {
      const inner = (2 * mirrored(a, last) + 1) * scale * delta;
      if (phase === 0) {
        const s = mirrored(a, last) * delta + at;
        if (s < ranks) steps.push({ distance: s, from: undefined });
      } else if (phase === 4) steps.push({ distance: 0, from: 1 });
      else {
        const s = phase === 1 ? mirrored(a, last) * delta + at : phase === 2 ? inner + 1 : inner;
        const from = phase === 2 ? 1 : lowest(s);
        if (s - from < ranks)
          steps.push({ distance: s - from, from: s < ranks ? from : undefined });
      }
    }
    if (phase === 1) at--;
    if (phase === 3) scale *= 2;
    if (phase === 0) phase = at === 1 ? (factor > 1 ? 2 : 4) : 1;
    else if (phase === 1) phase = at % 2 === 1 ? 0 : 1;
    else if (phase === 2) phase = 3;
    else phase = phase === 3 && scale < factor ? 2 : phase === 4 ? 5 : 4;
  }
  return steps;
}

/** An order as `patByNccl` writes it. */
function association(order: FoldOrder): string {
  return order.reduce<string>((folded, each, i) => {
    const operand = typeof each === "number" ? `${each}` : association(each);
    return i === 0 ? operand : `(${[folded, operand].sort().join("+")})`;
  }, "");
}

test.each([
  ...[2, 3, 4, 5, 6, 7, 8, 11, 16, 24, 31, 32].flatMap((hosts) =>
    [1, 10_000, 400_000].map((count) => [hosts, count] as const),
  ),
  ...[33, 48, 64, 100, 128].flatMap((hosts) =>
    [1, 3000, 400_000].map((count) => [hosts, count] as const),
  ),
])("PAT on %i hosts for %i elements folds as NCCL's schedule does", (hosts, count) => {
  const forced = { algorithm: "PAT", protocol: "Simple" } as const;
  const plan = ncclPlan({ ...request(hosts, "reduceScatter", count), forced });
  if (!("parts" in plan)) throw new Error("a plan without parts");
  const [part] = plan.parts;
  const expected = patByNccl(hosts, (part?.chunk ?? 0) * 4, (part?.length ?? 0) * 4);
  const found = plan.pieces.filter(({ channel, loop }) => channel === 0 && loop === 0);
  expect(found.map(({ order }) => association(order))).toEqual(expected);
  expect(plan.evidence).toBe(hosts <= 32 ? "measured" : "source");
});

test("the order of PAT depends on the size from 33 hosts on", () => {
  const forced = { algorithm: "PAT", protocol: "Simple" } as const;
  const order = (hosts: number, count: number): string =>
    orderText(
      ncclPlan({ ...request(hosts, "reduceScatter", count), forced }).pieces[0]?.order ?? [],
      " ",
    );
  expect(order(32, 1)).toBe(order(32, 400_000));
  expect(order(64, 1)).not.toBe(order(64, 400_000));
});

test("a thousand hosts are planned in milliseconds", () => {
  const hosts = 1024;
  const plans = (["allReduce", "reduceScatter", "allGather", "reduce"] as const).map(
    (collective) => {
      const started = performance.now();
      const plan = ncclPlan(request(hosts, collective, 2 ** 18));
      return { plan, ms: performance.now() - started };
    },
  );
  for (const { ms } of plans.slice(1)) expect(ms).toBeLessThan(50);
  const written = isAll ? plans : plans.filter(({ plan }) => plan.collective === "reduce");
  for (const { plan } of written) expect(ncclProgram(plan).ranks).toBe(hosts);
});

test.each([
  ["topology.hosts", { hosts: 0 }],
  ["topology.hosts", { hosts: 1e9 }],
  ["topology.hosts", { hosts: Number.NaN }],
  ["topology.gpusPerHost", { gpusPerHost: 2 }],
  ["topology.network.kind", { network: { kind: "infiniband", gigabitsPerSecond: 10 } }],
  ["topology.network", { network: undefined }],
  ...[0, -1, Number.NaN, Infinity, "10"].map(
    (gigabitsPerSecond) =>
      [
        "topology.network.gigabitsPerSecond",
        { network: { kind: "socket", gigabitsPerSecond } },
      ] as const,
  ),
] as const)("%s is refused by name", (field, wrong) => {
  const network = { kind: "socket", gigabitsPerSecond: 10 };
  const given = { hosts: 4, gpusPerHost: 1, network, ...wrong };
  expect(() => machineOf(given as never)).toThrow(expect.objectContaining({ field }));
});

test("more ranks than hosts are refused", () => {
  const four = machineOf({
    hosts: 4,
    gpusPerHost: 1,
    network: { kind: "socket", gigabitsPerSecond: 10 },
  });
  expect(four(3).ranks).toBe(3);
  expect(() => four(5)).toThrow(/topology.hosts: found 4, needs at least 5/);
});
