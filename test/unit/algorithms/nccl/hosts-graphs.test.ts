/** Graph files of nodes with several GPUs: rings and trees over hosts, by hand and by NCCL's rule of parents. */
import fc from "fast-check";
import { type CommError, createWorld, type DType, dtypeInfo, dtypes, type World } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { costEntry } from "../../../../src/algorithms/nccl/choice.ts";
import { type FoldOrder, orderText } from "../../../../src/algorithms/nccl/fold-order.ts";
import { graphTopology } from "../../../../src/algorithms/nccl/graph-topology.ts";
import { topologies } from "../../../../src/algorithms/nccl/machines.ts";
import type { NcclPlan, PlanRequest } from "../../../../src/algorithms/nccl/plan-types.ts";
import { ncclFused, ncclLayout, ncclProgram } from "../../../../src/algorithms/nccl/program.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import type { Topology } from "../../../../src/algorithms/nccl/topology.ts";
import { oracleFinish, oracleFold, oracleJoin } from "../../../../src/testing/oracle/rounding.ts";
import { recordsOf } from "../../../golden/replay.ts";
import { graphText, joinedText } from "../../../support/graph-files.ts";
import { planProblems } from "../../../support/plan-problems.ts";
import { isAll } from "../../../support/seed.ts";

const one = (gpus: number): number[][] => [Array.from({ length: gpus }, (_, gpu) => gpu)];

const alike = (gpus: number, hosts: number, pattern: number): Topology =>
  graphTopology(joinedText(one(gpus), one(gpus), pattern))(gpus * hosts);

function treesOf(topology: Topology): string[] {
  const plan = ncclPlan({
    ...request(topology, "allReduce", 1_000_000),
    forced: { algorithm: "Tree" },
  });
  return [...new Set(plan.pieces.map(({ order }) => orderText(order, " ")))];
}

function request(topology: Topology, collective: NcclCollective, count: number): PlanRequest {
  const reduces = collective !== "allGather" && collective !== "broadcast";
  const op = reduces ? ("sum" as const) : undefined;
  const root = topology.ranks - 1 - (count % topology.ranks);
  return { version: "2.28", topology, collective, dtype: "float32", op, count, root };
}

describe("trees by hand", () => {
  test.each([
    [1, ["r3 r2 r1 r0 (r7 r6 r5 r4)", "r7 r6 r5 r4 (r3 r2 r1 r0)"]],
    [2, ["r3 r2 r1 (r7 r6 r5 r4) r0", "r7 r6 r5 (r3 r2 r1 r0) r4"]],
    [3, ["r3 r2 r1 r0 (r7 r6 r5 r4)", "r7 r6 r5 r4 (r3 r2 r1 r0)"]],
  ])("2 hosts of 4 GPUs, pattern %i", (pattern, trees) => {
    expect(treesOf(alike(4, 2, pattern))).toEqual(trees);
  });

  // Tree A: host 0 over host 2, which is over hosts 1 and 3. Tree B: host 3 over host 1, which is over hosts 2 and 0.
  test.each([
    [1, ["r1 r0 (r3 r2 r5 r4 (r7 r6))", "r7 r6 (r5 r4 r3 r2 (r1 r0))"]],
    [2, ["r3 r2 r5 (r7 r6) r4 r1 r0", "r5 r4 r3 (r1 r0) r2 r7 r6"]],
    [3, ["r1 r0 (r5 r4 (r3 r2) (r7 r6))", "r7 r6 (r3 r2 (r5 r4) (r1 r0))"]],
  ])("4 hosts of 2 GPUs, pattern %i", (pattern, trees) => {
    expect(treesOf(alike(2, 4, pattern))).toEqual(trees);
  });

  test("2 hosts of 8 GPUs with two chains", () => {
    const chains = [
      [0, 1, 2, 3, 4, 5, 6, 7],
      [4, 5, 6, 7, 3, 2, 1, 0],
    ];
    const topology = graphTopology(joinedText(chains, chains, 1))(16);
    expect(treesOf(topology)).toEqual([
      "r7 r6 r5 r4 r3 r2 r1 r0 (r15 r14 r13 r12 r11 r10 r9 r8)",
      "r0 r1 r2 r3 r7 r6 r5 r4 (r8 r9 r10 r11 r15 r14 r13 r12)",
      "r15 r14 r13 r12 r11 r10 r9 r8 (r7 r6 r5 r4 r3 r2 r1 r0)",
      "r8 r9 r10 r11 r15 r14 r13 r12 (r0 r1 r2 r3 r7 r6 r5 r4)",
    ]);
    expect(topology.channels).toHaveLength(4);
  });
});

describe("rings by hand", () => {
  const rings = [
    [0, 1, 2, 3],
    [2, 3, 0, 1],
  ];
  const ringsWith = (crossnic: number, hosts = 2): string[] => {
    const xml = joinedText(rings, rings, 1, { crossnic });
    return graphTopology(xml)(4 * hosts).channels.map(({ ring }) => ring.join(" "));
  };

  test("run through the hosts in order, each along its own ring", () => {
    const [first, second] = ["0 1 2 3 4 5 6 7", "0 1 6 7 4 5 2 3"];
    expect(ringsWith(0)).toEqual([first, second, first, second]);
    expect(ringsWith(1)).toEqual(ringsWith(0));
  });

  test("exchange even and odd ones on odd hosts where NICs are not crossed", () => {
    const [first, second] = ["0 1 2 3 6 7 4 5", "0 1 4 5 6 7 2 3"];
    expect(ringsWith(2)).toEqual([first, second, first, second]);
    expect(ringsWith(2, 3)[0]).toBe("0 1 2 3 6 7 4 5 8 9 10 11");
  });

  test("are not exchanged where their number is odd", () => {
    const three = [...rings, [1, 2, 3, 0]];
    const { channels } = graphTopology(joinedText(three, three, 1, { crossnic: 2 }))(8);
    expect(channels[0]?.ring.join(" ")).toBe("0 1 2 3 4 5 6 7");
  });

  test("are twice as many again where few are faster than 45 GB/s", () => {
    const channelsAt = (speedintra: number, count: number): number => {
      const channels = new Array<number[]>(count).fill([0, 1]);
      return graphTopology(joinedText(channels, channels, 1, { speedintra }))(4).channels.length;
    };
    expect([channelsAt(45, 4), channelsAt(45.1, 4), channelsAt(48, 7), channelsAt(48, 8)]).toEqual([
      ...[8, 16, 28, 16],
    ]);
  });
});

describe("hosts with graphs of their own", () => {
  const xml = [
    joinedText(one(4), one(4), 1, { speedintra: 40, typeinter: "PXN" }),
    joinedText(one(2), one(2), 3, { speedinter: 12, samechannels: 0 }),
    joinedText([[0]], [[0]], 3, { typeintra: "LOC", typeinter: "PHB" }),
  ];
  const topology = graphTopology({ xml })(7);

  test("take the worst figures of all", () => {
    expect(topology).toMatchObject({ nodes: 3, nodeSizes: [4, 2, 1], sameChannels: false });
    const search = { channels: 1, bandwidth: 30, interBandwidth: 12, ll128: false };
    expect(topology.ringSearch).toMatchObject(search);
    expect(topology.treeSearch).toMatchObject({ ...search, pattern: 3 });
    expect(topology.channels[0]?.ring).toEqual([0, 1, 2, 3, 4, 5, 6]);
    // Tree A of 3 hosts: 0 over 2, 2 over 1.
    expect(treesOf(topology)[0]).toBe("r3 r2 r1 r0 (r5 r4 r6)");
  });

  test("with chains of one, two and four GPUs have good plans", () => {
    expect(problemsOfAll(topology)).toEqual([]);
  });

  test("need one latency", () => {
    const two = [xml[0] as string, joinedText(one(2), one(2), 1, { latencyinter: 5 })];
    expect(() => graphTopology({ xml: two })).toThrow(/latencyinter 0 and 5, needs one latency/);
  });

  test("may be written for hosts that are alike", () => {
    const text = joinedText(one(4), one(4), 1);
    expect(graphTopology({ xml: [text, text] })(8)).toEqual(graphTopology(text)(8));
  });
});

const collectives = ["allReduce", "reduceScatter", "reduce", "allGather", "broadcast"] as const;

function problemsOf(plan: NcclPlan): string[] {
  const [program, fused, layout] = [ncclProgram(plan), ncclFused(plan), ncclLayout(plan)];
  return planProblems({ program, fused, layout, count: plan.count });
}

/** Problems of every collective, and of trees over all protocols. */
function problemsOfAll(topology: Topology): string[] {
  const settings = { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 };
  const chosen = collectives.flatMap((collective) =>
    [1, 1023, 40_009].map((count) => request(topology, collective, count)),
  );
  const trees = (["LL", "LL128", "Simple"] as const).flatMap((protocol) =>
    [5, 40_009].map((count) => ({
      ...request(topology, "allReduce", count),
      ...{ settings, forced: { algorithm: "Tree", protocol } as const },
    })),
  );
  return [...chosen, ...trees].flatMap((each) => problemsOf(ncclPlan(each))).slice(0, 3);
}

test.each([
  [2, 4],
  [2, 8],
  [4, 2],
  [5, 3],
])("programs over %i hosts of %i GPUs fold as their plans", (hosts, gpus) => {
  for (const pattern of [1, 2, 3]) {
    expect(problemsOfAll(alike(gpus, hosts, pattern))).toEqual([]);
  }
});

/** The parents of all ranks by NCCL's own way: each node computes its place in the tree over nodes, and takes ranks from tables. */
function parentsByNccl(
  chains: readonly (readonly number[])[],
  patterns: readonly number[],
  isMirror: boolean,
): Map<number, number> {
  const nodes = chains.length;
  const parents = new Map<number, number>();
  const isEven = nodes % 2 === 0;
  const into = (node: number): number =>
    !isMirror ? node : isEven ? nodes - 1 - node : (node - 1 + nodes) % nodes;
  const outOf = (place: number): number =>
    !isMirror ? place : isEven ? nodes - 1 - place : (place + 1) % nodes;
  chains.forEach((chain, node) => {
    chain.forEach((rank, at) => {
      if (at > 0) parents.set(rank, chain[at - 1] as number);
    });
    const place = into(node);
    if (place === 0) return;
    const bit = place & -place;
    const beyond = (place ^ bit) | (bit << 1);
    const up = beyond >= nodes ? place ^ bit : beyond;
    const upChain = chains[outOf(up)] as readonly number[];
    const pattern = patterns[outOf(up)];
    const carrier = place < up ? (pattern === 3 ? 0 : 1) : pattern === 2 ? 1 : 0;
    parents.set(chain[0] as number, upChain[carrier] as number);
  });
  return parents;
}

test("parents of all ranks agree with NCCL's tables", () => {
  const node = fc.integer({ min: 2, max: 5 }).chain((gpus) =>
    fc.record({
      chain: fc.shuffledSubarray(
        Array.from({ length: gpus }, (_, gpu) => gpu),
        { minLength: gpus },
      ),
      pattern: fc.integer({ min: 1, max: 3 }),
    }),
  );
  fc.assert(
    fc.property(fc.array(node, { minLength: 2, maxLength: 9 }), (nodes) => {
      const xml = nodes.map(({ chain, pattern }) => joinedText([chain], [chain], pattern));
      let base = 0;
      const chains = nodes.map(({ chain }) => {
        const ranks = chain.map((gpu) => base + gpu);
        base += chain.length;
        return ranks;
      });
      const { channels } = graphTopology({ xml })(base);
      const patterns = nodes.map(({ pattern }) => pattern);
      [false, true].forEach((isMirror, half) => {
        const { children } = channels[half]!.tree;
        const found = children.flatMap((of, rank) => of.map((child) => [child, rank] as const));
        const parents = parentsByNccl(chains, patterns, isMirror);
        expect(new Map(found)).toEqual(parents);
        expect(found).toHaveLength(parents.size);
      });
    }),
    { numRuns: 60 },
  );
});

describe("the cost table", () => {
  const topologyOf = (hosts: number, attributes = {}, cpu: "intel" | "amd" = "intel"): Topology => {
    const eight = new Array<number[]>(8).fill(one(8)[0] as number[]);
    const xml = joinedText(eight, eight, 1, { speedintra: 40, speedinter: 24, ...attributes });
    return graphTopology({ xml, cpu })(8 * hosts);
  };
  const latency = (
    topology: Topology,
    algorithm: "Ring" | "Tree",
    protocol: "LL" | "LL128" | "Simple",
  ): number => costEntry("allReduce", algorithm, protocol, topology).latency;

  // 2 x 31 steps of a ring, 6 of them between the 4 hosts; up and down 7 links of a chain and 2 levels of hosts.
  test.each([
    ["Ring", "LL", 6.6 + 56 * 1 + 6 * 2.7, 6.6 + 56 * 2 + 6 * 2.7],
    ["Ring", "LL128", 14 + 56 * 1.9 + 6 * 4, 14 + 56 * 2 + 6 * 4],
    ["Ring", "Simple", 8.4 + 56 * 3.4 + 6 * 14, 8.4 + 56 * 6 + 6 * 14],
    ["Tree", "LL", 6.8 + 2 * (7 * 0.6 + 2 * 5), 6.8 + 2 * (7 * 0.6 + 2 * 5)],
    ["Tree", "Simple", 8.4 + 2 * (7 * 4 + 2 * 14), 8.4 + 2 * (7 * 4 + 2 * 14)],
  ] as const)(
    "has the latency of %s %s over 4 hosts of 8 GPUs",
    (algorithm, protocol, intel, amd) => {
      expect(latency(topologyOf(4), algorithm, protocol)).toBeCloseTo(intel, 3);
      expect(latency(topologyOf(4, {}, "amd"), algorithm, protocol)).toBeCloseTo(amd, 3);
    },
  );

  test("adds the network's latency to each of its steps, twice for Simple", () => {
    const slow = topologyOf(4, { latencyinter: 1.5 });
    const more = (algorithm: "Ring" | "Tree", protocol: "LL" | "Simple"): number =>
      latency(slow, algorithm, protocol) - latency(topologyOf(4), algorithm, protocol);
    expect(more("Ring", "LL")).toBeCloseTo(6 * 1.5, 3);
    expect(more("Ring", "Simple")).toBeCloseTo(6 * 3, 3);
    expect(more("Tree", "LL")).toBeCloseTo(4 * 1.5, 3);
  });

  test("has the bandwidth within hosts up to two of them, then that between hosts", () => {
    const simple = (hosts: number): number =>
      costEntry("allReduce", "Ring", "Simple", topologyOf(hosts)).bandwidth;
    expect(simple(2)).toBeCloseTo((8 * 40 * 16) / 30, 3);
    expect(simple(4)).toBeCloseTo((8 * 24 * 32) / 62, 3);
    const ll = (hosts: number, cpu: "intel" | "amd"): number =>
      costEntry("allReduce", "Ring", "LL", topologyOf(hosts, {}, cpu)).bandwidth;
    expect([ll(2, "intel"), ll(2, "amd")]).toEqual(
      [39, 22.5].map((cap) => Math.fround(cap * Math.fround(16 / 30))),
    );
    expect([ll(4, "intel"), ll(4, "amd")]).toEqual(
      [20.4, 19].map((cap) => Math.fround(Math.fround(cap) * Math.fround(32 / 62))),
    );
  });

  test("has no PAT for hosts of several GPUs, and LL128 up to PXN", () => {
    const { ranks } = topologyOf(4);
    expect(costEntry("reduceScatter", "PAT", "Simple", topologyOf(4)).bandwidth).toBe(0);
    const protocols = (typeinter: string): string[] => {
      const topology = topologyOf(4, { typeinter });
      const plans = Array.from({ length: 30 }, (_, power) =>
        ncclPlan(request(topology, "allReduce", 2 ** power)),
      );
      return [...new Set(plans.map(({ protocol }) => String(protocol)))].sort();
    };
    expect(ranks).toBe(32);
    expect(protocols("PXN")).toEqual(["LL", "LL128", "Simple"]);
    expect(protocols("PHB")).toEqual(["LL", "Simple"]);
  });
});

describe("hosts of one GPU", () => {
  const attributes = { typeintra: "LOC", speedintra: 1.2, speedinter: 1.2, typeinter: "PHB" };
  const graph = { channels: [[0]], nets: [[0, 0] as const] };
  const socketText = graphText(
    { ...graph, id: 0, pattern: 4, attributes },
    { ...graph, id: 1, pattern: 3, attributes: { ...attributes, speedintra: 2.4 } },
  );

  test.each([1, 2, 3, 8, 32, 33])("with sockets at 10 Gb/s are h200-hosts: %i", (hosts) => {
    const { name, cpu, ...read } = graphTopology(socketText)(hosts);
    const { name: preset, ...known } = topologies["h200-hosts"](hosts);
    expect(name).not.toBe(preset);
    expect(read).toEqual(known);
    for (const collective of collectives) {
      for (const count of [1, 3000, 100_000, 2_000_000]) {
        const facts = (topology: Topology) => {
          const plan = ncclPlan(request({ ...topology, name: "" }, collective, count));
          return { ...plan, pieces: plan.pieces.slice(0, 100) };
        };
        expect(facts({ ...read, name })).toEqual(facts({ ...known, name }));
      }
    }
  });

  test.each([2, 4])("of %i GPUs are measured as far as results were recorded", (gpus) => {
    const { topology } = recordsOf(`nccl-2.28.9-hosts-of-${gpus}.jsonl`).head;
    const of = graphTopology((topology as { readonly xml: string }).xml);
    expect([2, 3].map((hosts) => of(hosts * gpus).evidence)).toEqual(["measured", "source"]);
  });

  test("with a fast network have LL128, many channels, and source as evidence", () => {
    const channels = new Array<number[]>(12).fill([0]);
    const fast = { typeintra: "LOC", speedintra: 24, speedinter: 24, typeinter: "PIX" };
    const topology = graphTopology(joinedText(channels, channels, 3, fast))(4);
    expect(topology).toMatchObject({ nodes: 4, evidence: "source" });
    expect(topology.channels).toHaveLength(24);
    const plans = [2 ** 16, 2 ** 19, 2 ** 24].map((count) =>
      ncclPlan(request(topology, "allReduce", count)),
    );
    expect(plans.map(({ protocol }) => protocol)).toContain("LL128");
    expect(plans.at(-1)?.channels).toBe(24);
    expect(problemsOfAll(topology)).toEqual([]);
  });

  test("may be as many as a world has ranks, each with a file of its own", () => {
    const ranks = isAll ? 131_072 : 4_096;
    const text = joinedText([[0]], [[0]], 3, { typeintra: "LOC" });
    const xml = Array.from({ length: ranks }, (_, rank) =>
      text.replaceAll('gpu dev="0"', `gpu dev="0" rank="${rank}"`),
    );
    const [alike, each] = [graphTopology(text)(ranks), graphTopology({ xml })(ranks)];
    expect(each.name).toBe(`${ranks} hosts of 1 Hopper GPU with the given graph and Intel CPUs`);
    expect(each.name).toBe(alike.name);
    expect(each.channels[1]?.tree.root).toBe(ranks - 1);
    expect(each.channels[0]?.ring.at(-1)).toBe(ranks - 1);
    expect(each.channels).toHaveLength(alike.channels.length);
  });

  test("take the tree pattern of one GPU alone", () => {
    expect(() => graphTopology(joinedText([[0]], [[0]], 1, { typeintra: "LOC" }))).toThrow(
      /pattern 1 for one GPU, needs 3/,
    );
  });
});

describe("numbers of ranks and hosts", () => {
  const joined = joinedText(one(4), one(4), 1);
  const alone = graphText(
    { id: 0, pattern: 4, channels: one(4) },
    { id: 1, pattern: 1, channels: one(4) },
  );

  test.each([
    [joined, 4, /found rings between hosts, the ranks are on one host/],
    [joined, 6, /found 6 ranks, .* those of hosts of 4 GPUs/],
    [alone, 8, /found 8 ranks, .* those of 4 GPUs[\s\S]*which has <net> elements/],
    [[alone, alone], 8, /found rings of one host, the ranks are on several/],
    [[joined, alone], 8, /found rings of one host, the ranks are on several/],
    [[joined], 4, /found rings between hosts/],
    [[joined, joined], 12, /found 12 ranks, .* those of 2 hosts with 8 GPUs/],
  ])("case %#", (xml, ranks, message) => {
    const error = errorOf(() => graphTopology({ xml })(ranks));
    expect(error).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", field: "topology" });
    expect(error.message).toMatch(message);
  });

  test.each([
    [{ xml: [] }, "topology.xml"],
    [{ xml: [joined, 5] }, "topology.xml"],
    [{ xml: null }, "topology.xml"],
    [{ xml: joined, cpu: "arm" }, "topology.cpu"],
    [{ xml: joined, hosts: 2 }, "topology.hosts"],
  ])("%#: a wrong option is refused by name", (option, field) => {
    const error = errorOf(() => graphTopology(option as never)(8));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
  });

  test("a graph with a NIC in one channel alone contradicts itself", () => {
    const nets = [[0, 0] as const];
    const two = [
      [0, 1],
      [0, 1],
    ];
    const half = graphText(
      { id: 0, pattern: 4, channels: two, nets },
      { id: 1, pattern: 1, channels: two, nets },
    );
    expect(() => graphTopology(half)).toThrow(/line 9: channel 1 has no <net>/);
    const mixed = graphText(
      { id: 0, pattern: 4, channels: one(2), nets },
      { id: 1, pattern: 1, channels: one(2) },
    );
    expect(() => graphTopology(mixed)).toThrow(/the tree has no <net>/);
  });

  test("pinned rings over hosts are refused", async () => {
    const backend = () =>
      sim({
        like: "nccl-2.28",
        topology: { xml: joined },
        plan: { rings: [0, 2, 1, 3, 4, 5, 6, 7] },
      });
    await expect(
      (async () => createWorld({ backend: backend(), size: 8 }))(),
    ).rejects.toMatchObject({ field: "plan.rings" });
  });
});

function errorOf(action: () => unknown): CommError {
  try {
    action();
  } catch (error) {
    return error as CommError;
  }
  return expect.fail("it should be refused");
}

describe("a world over 4 hosts of 2 GPUs", () => {
  const xml = joinedText(one(2), one(2), 1, { speedinter: 12 });
  const open = (): Promise<World> =>
    createWorld({
      backend: sim({
        like: "nccl-2.28",
        topology: { xml },
        plan: { algorithm: "Tree", protocol: "LL" },
      }),
      size: 8,
    });
  const treeA: FoldOrder = [1, 0, [3, 2, 5, 4, [7, 6]]];

  test.each(dtypes)("folds %s in the order of its tree", async (dtype) => {
    for (const op of ["sum", "avg", "max"] as const) {
      const world = await open();
      const inputs = Array.from({ length: 8 }, (_, rank) => valuesOf(dtype, rank));
      const results = await world.run(async (comm) => {
        const { view } = dtypeInfo[dtype];
        const bytes = (inputs[comm.rank] as Uint8Array).slice();
        const data = comm.alloc(dtype, elements).copyFrom(view(bytes.buffer, 0, elements));
        await comm.allReduce({ send: data, op });
        const host = await data.toHost();
        return new Uint8Array(host.buffer, host.byteOffset, host.byteLength).slice();
      });
      await world.close();
      const expected = expectedBytes(dtype, op, inputs, treeA);
      for (const result of results) expect(result).toEqual(expected);
    }
  });

  test("states its source, its hosts and its vendor, and draws hosts", async () => {
    const world = await open();
    const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 4096 } as const;
    const plan = world.explain(call);
    await world.close();
    expect(plan.claim).toBe(
      "the same bits as NCCL 2.28.9 on 4 hosts of 2 Hopper GPUs with the given graph and Intel CPUs without in-switch reduction: from the source, not measured",
    );
    expect(`${plan}`).toContain(
      [
        "tree A: channel 0",
        "  host 0: r0 ← r1",
        "  └─ host 2: r4 ← r5 into r0",
        "     ├─ host 3: r6 ← r7 into r4",
        "     └─ host 1: r2 ← r3 into r5",
        "",
        "tree B: channel 1",
        "  host 3: r6 ← r7",
        "  └─ host 1: r2 ← r3 into r6",
        "     ├─ host 0: r0 ← r1 into r2",
        "     └─ host 2: r4 ← r5 into r3",
      ].join("\n"),
    );
  });

  test("claims nothing about hosts of their own, nor about a GPU of each", async () => {
    const world = await open();
    const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 8 } as const;
    const claims = await world.run(async (comm) => {
      const host = await comm.split({ color: Math.floor(comm.rank / 4) });
      const rail = await comm.split({ color: comm.rank % 2 });
      const send = new Float32Array(8).fill(comm.rank);
      await host.allReduce({ send, op: "sum" });
      await rail.allReduce({ send, op: "sum" });
      return [host.explain(call).claim, rail.explain(call).claim, send[0]] as const;
    });
    await world.close();
    for (const [host, rail, sum] of claims) {
      expect(host).toMatch(/the graph file has the rings of all 8 ranks/);
      expect(rail).toMatch(/the graph file has the rings of all 8 ranks/);
      expect(sum).toBe(2 * (0 + 1 + 2 + 3) + 2 * (4 + 5 + 6 + 7));
    }
  });
});

const elements = 64;

/** Bytes of finite values of many magnitudes. */
function valuesOf(dtype: DType, rank: number): Uint8Array {
  const { view, bytes, kind } = dtypeInfo[dtype];
  const buffer = new ArrayBuffer(elements * bytes);
  const array = view(buffer, 0, elements) as unknown as { [i: number]: number | bigint };
  for (let i = 0; i < elements; i++) {
    const value = Math.sin(i * 13 + 7 * rank + 1) * 2 ** ((i + 3 * rank) % 6);
    if (kind === "float") {
      if (bytes > 2 || dtype === "float16") array[i] = value;
    } else if (bytes === 8) array[i] = BigInt(Math.trunc(Math.abs(value)));
    else array[i] = Math.trunc(Math.abs(value));
  }
  if (kind === "float" && dtype !== "float16" && bytes <= 2) {
    const raw = bytes === 1 ? new Uint8Array(buffer) : new Uint16Array(buffer);
    for (let i = 0; i < elements; i++) {
      const sign = (i + rank) % 3 === 0 ? 1 : 0;
      raw[i] =
        bytes === 1
          ? (sign << 7) | (0x28 + ((i * 5 + rank * 11) % 24))
          : (sign << 15) | (0x3f00 + ((i * 37 + rank * 91) % 512));
    }
  }
  return new Uint8Array(buffer);
}

function expectedBytes(
  dtype: DType,
  op: "sum" | "avg" | "max",
  inputs: readonly Uint8Array[],
  order: FoldOrder,
): Uint8Array {
  const { bytes } = dtypeInfo[dtype];
  const result = new Uint8Array(elements * bytes);
  const bitsAt = (data: Uint8Array, i: number): bigint => {
    let bits = 0n;
    for (let byte = bytes - 1; byte >= 0; byte--)
      bits = (bits << 8n) | BigInt(data[i * bytes + byte] as number);
    return bits;
  };
  for (let i = 0; i < elements; i++) {
    const hop = (rank: number, begin?: bigint): bigint =>
      oracleFold({
        ...{ dtype, op, ranks: 8, rounding: "fused", finish: false },
        contributions: [bitsAt(inputs[rank] as Uint8Array, i)],
        ...(begin !== undefined && { begin }),
      });
    const folded = (each: FoldOrder): bigint =>
      each.reduce<bigint | undefined>((left, operand) => {
        if (typeof operand === "number") return hop(operand, left);
        const right = folded(operand);
        return left === undefined ? right : oracleJoin({ dtype, op, left, right });
      }, undefined) as bigint;
    let bits = oracleFinish({ dtype, op, ranks: 8, bits: folded(order) });
    for (let byte = 0; byte < bytes; byte++, bits >>= 8n)
      result[i * bytes + byte] = Number(bits & 255n);
  }
  return result;
}
