/** Pinned plans in the twin: what is accepted, what they do to plans, and the graph file that says the same to NCCL. */
import { createWorld } from "twinccl";
import { type NcclPin, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { graphFile } from "../../../../../src/algorithms/nccl/graph-file.ts";
import { graphTopology } from "../../../../../src/algorithms/nccl/graph-topology.ts";
import { resolvePin } from "../../../../../src/algorithms/nccl/pin.ts";
import { h200x8, withRing } from "../../../../../src/algorithms/nccl/topology.ts";

const identity = (ranks: number): number[] => Array.from({ length: ranks }, (_, rank) => rank);

describe("a graph file", () => {
  test.each([2, 3, 4, 5, 6, 7, 8])(
    "of %i GPUs is read with the facts that it was written from",
    (ranks) => {
      const { name, treeSearch, ...facts } = h200x8(ranks);
      const read = graphTopology(graphFile(h200x8(ranks), identity(ranks)))(ranks);
      expect(read).toMatchObject({ ...facts, treeSearch });
      expect(read.name).not.toBe(name);
    },
  );

  test("with another ring has it in every channel, beside the same chains", () => {
    const topology = withRing(h200x8(4), [2, 0, 3, 1]);
    const file = graphFile(topology, [4, 5, 6, 10]);
    expect(file.match(/<channel>/g)).toHaveLength(24);
    expect(file).toContain('<gpu dev="0xa"/>');
    const { channels } = graphTopology(file)(4);
    expect(new Set(channels.map(({ ring }) => ring.join()))).toEqual(new Set(["0,3,1,2"]));
    expect(channels.map(({ tree }) => tree)).toEqual(h200x8(4).channels.map(({ tree }) => tree));
  });
});

describe("a pin", () => {
  test("of channels is both limits", () => {
    expect(resolvePin({ channels: 5, protocol: "LL" })).toEqual({
      ...{ minChannels: 5, maxChannels: 5, variables: { NCCL_PROTO: "LL" } },
    });
  });

  const bad: [string, unknown, RegExp][] = [
    ["an algorithm", { algorithm: "ring" }, /algorithm: found "ring", needs one of Ring, Tree/],
    ["a protocol", { protocol: "ll" }, /protocol: found "ll", needs one of LL, LL128, Simple/],
    ["channels", { channels: 65 }, /plan\.channels: found 65, needs 1\.\.64/],
    ["a least number of channels", { minChannels: 0 }, /plan\.minChannels: found 0, needs 1\.\.64/],
    ["threads", { threads: "512" }, /plan\.threads: found "512", needs an integer of at least 0/],
    ["threads of LL128", { ll128Threads: null }, /plan\.ll128Threads: found null, needs/],
    ["both kinds of limits", { channels: 2, maxChannels: 3 }, /channels: found it beside/],
    ["a rank twice", { rings: [0, 1, 1] }, /rings: found \[0, 1, 1\], needs every rank/],
    ["no ranks", { rings: [] }, /rings: found \[\]/],
    ["rings as text", { rings: "0-1" }, /rings: found "0-1", needs ranks in order/],
    ["rings of null", { rings: null }, /rings: found null, needs ranks in order/],
    ["a buffer", { llBuffSize: -1 }, /plan\.llBuffSize: found -1/],
    ["a variable", { variables: { NCCL_ALGO: "trea" } }, /NCCL_ALGO: found "trea"/],
    [
      "a variable's value",
      { variables: { NCCL_MAX_CTAS: 3 } },
      /NCCL_MAX_CTAS: found 3, needs a text/,
    ],
    [
      "a list beside",
      { algorithm: "Ring", variables: { NCCL_ALGO: "tree" } },
      /algorithm: found it beside/,
    ],
    [
      "a limit beside",
      { channels: 2, variables: { NCCL_MIN_CTAS: "2" } },
      /minChannels: found it beside/,
    ],
  ];
  test.each(bad)("is refused for %s that make no sense", (_, pin, message) => {
    expect(() => resolvePin(pin as NcclPin)).toThrow(message);
    expect(() => sim({ like: "nccl-2.28", plan: pin as NcclPin })).toThrow(message);
  });

  test("of a ring belongs to worlds of its size", async () => {
    const backend = sim({ like: "nccl-2.28", plan: { rings: [0, 2, 1] } });
    await expect(createWorld({ backend, size: 4 })).rejects.toThrow(
      /rings: found 3 ranks, needs all 4 of the world/,
    );
  });
});

/** The order in which an element of an all-reduce on the pinned sim is folded. */
async function orderOf(plan: NcclPin, size: number): Promise<readonly number[]> {
  const world = await createWorld({ backend: sim({ like: "nccl-2.28", plan }), size });
  try {
    return world
      .explain({ collective: "allReduce", dtype: "float32", op: "sum", count: 1 })
      .chunkOf(0).order;
  } finally {
    await world.close();
  }
}

test("a pinned ring decides the order: chunk k begins behind position k, counted from rank 0", async () => {
  expect(await orderOf({ algorithm: "Ring", rings: [0, 1, 2, 3] }, 4)).toEqual([1, 2, 3, 0]);
  expect(await orderOf({ algorithm: "Ring", rings: [3, 1, 0, 2] }, 4)).toEqual([2, 3, 1, 0]);
  const xml = graphFile(withRing(h200x8(3), [0, 2, 1]), [0, 1, 2]);
  expect(await orderOf({ algorithm: "Ring", rings: { xml } }, 3)).toEqual([2, 1, 0]);
});

test("a communicator of a split has the rings of its own ranks", async () => {
  const backend = sim({ like: "nccl-2.28", plan: { algorithm: "Ring", rings: [0, 3, 2, 1] } });
  const world = await createWorld({ backend, size: 4 });
  const orders = await world.run(async (comm) => {
    const half = await comm.split({ color: comm.rank < 3 ? 0 : undefined, key: comm.rank });
    const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 } as const;
    return half?.explain(call).chunkOf(0).order;
  });
  expect(orders[0]).toEqual([1, 2, 0]);
  await world.close();
});

test("a pin's variables are what NCCL makes of them", async () => {
  const variables = {
    NCCL_ALGO: "ring;allreduce:tree,ring",
    NCCL_PROTO: "^LL",
    NCCL_MAX_CTAS: "3",
  };
  expect(resolvePin(resolvePin({ variables }))).toEqual(resolvePin({ variables }));
  const backend = sim({ like: "nccl-2.28", plan: { variables } });
  const world = await createWorld({ backend, size: 4 });
  const call = { dtype: "float32", op: "sum" } as const;
  const planned = (collective: "allReduce" | "reduce", count: number): unknown => {
    const { algorithm, channels } = world.explain({ ...call, collective, count });
    return `${algorithm}, ${channels}`;
  };
  expect(planned("allReduce", 2 ** 24)).toBe("Ring Simple, 3");
  expect(planned("allReduce", 2 ** 10)).toBe("Tree LL128, 1");
  expect(planned("reduce", 2 ** 24)).toBe("Ring Simple, 3");
  await world.close();
});

test("Tree is for all-reduces; other collectives keep NCCL's choice", async () => {
  const backend = sim({ like: "nccl-2.28", plan: { algorithm: "Tree", protocol: "LL128" } });
  const world = await createWorld({ backend, size: 4 });
  const call = { dtype: "float32", op: "sum", count: 1000 } as const;
  expect(world.explain({ ...call, collective: "allReduce" }).algorithm).toMatch(/^Tree/);
  const reduce = world.explain({ ...call, collective: "reduce" });
  expect(reduce.algorithm).toMatch(/^Ring/);
  expect(reduce.protocol).toBe("LL128");
  await world.close();
});
