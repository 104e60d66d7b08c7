/** The plans that a simulated world follows, named and unnamed, and its claims about them. */
import { type CommError, createWorld, type Explanation, type Question } from "twinccl";
import { type SimOptions, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

const question: Question = { collective: "allReduce", dtype: "float32", op: "sum", count: 1000 };

async function explained(
  options: SimOptions,
  size: number,
  asQuestion: Question = question,
): Promise<Explanation> {
  const world = await createWorld({ backend: sim(options), size });
  try {
    return world.explain(asQuestion);
  } finally {
    await world.close();
  }
}

/** The bits of one element with a sum that depends on its order. */
async function bitsOf(options: SimOptions, size: number): Promise<number> {
  const world = await createWorld({ backend: sim(options), size });
  const [bits] = await world.run(async (comm) => {
    const send = new Float32Array(1000).map(
      (_, i) => Math.sin(1 + i * (comm.rank + 1)) / 3 ** comm.rank,
    );
    await comm.allReduce({ send, op: "sum" });
    return new Uint32Array(send.buffer).reduce((hash, word) => Math.imul(hash ^ word, 0x01000193));
  });
  await world.close();
  return bits as number;
}

describe("without a name", () => {
  test.each([1, 2, 5, 8])("%i ranks follow NCCL 2.28 on h200x8", async (size) => {
    const plan = await explained({}, size);
    const named = await explained({ like: "nccl-2.28", topology: "h200x8" }, size);
    expect(String(plan)).toBe(String(named));
    expect(plan.claim).toMatch(/^the same bits as NCCL 2\.28\.9 on h200x8/);
    expect(await bitsOf({}, size)).toBe(await bitsOf({ like: "nccl-2.28" }, size));
  });

  test("more ranks run a generic ring, without a claim", async () => {
    const plan = await explained({}, 9);
    expect(plan.algorithm).toBe("ring");
    expect(plan.claim).toMatch(/no claim is made about NCCL's bits: 9 ranks are more than the 8/);
    expect(String(plan)).toContain(plan.claim);
  });

  test("a part of a larger world has no separate machine", async () => {
    const world = await createWorld({ backend: sim(), size: 10 });
    const claims = await world.run(async (comm) => {
      const part = await comm.split({ color: comm.rank % 2 });
      return part.explain(question).claim;
    });
    await world.close();
    expect(new Set(claims).size).toBe(1);
    expect(claims[0]).toMatch(/no claim/);
  });

  test("the ring of the catalogue gives other bits", async () => {
    expect(await bitsOf({ algorithms: { allReduce: "ring" } }, 7)).not.toBe(await bitsOf({}, 7));
  });
});

describe("a chosen algorithm", () => {
  test.each([{}, { like: "nccl-2.28" }] as const)("is used (%o), without a claim", async (like) => {
    const plan = await explained({ ...like, algorithms: { allReduce: "chain" } }, 4);
    expect(plan.algorithm).toBe("chain");
    expect(plan.claim).toMatch(/no claim.*chosen by name/);
    const other = await explained({ ...like, algorithms: { allReduce: "chain" } }, 4, {
      ...question,
      collective: "reduceScatter",
    });
    expect(other.algorithm).toBe("Ring LL");
  });
});

test.each(["allToAll", "gather", "broadcast", "allGather"] as const)(
  "%s copies bytes under any plan",
  async (collective) => {
    const asQuestion = { collective, dtype: "int8", count: 4, root: 0 } as const;
    const { claim } = await explained({ algorithms: { broadcast: "chain" } }, 20, asQuestion);
    expect(claim).toMatch(/^copies bytes/);
  },
);

describe("a name that cannot be followed is refused", () => {
  const unsupported = { code: "ERR_COMM_UNSUPPORTED" };
  const failure = (options: object, size = 2): Promise<CommError> =>
    (async () => createWorld({ backend: sim(options as SimOptions), size }))().then(
      () => expect.fail("it should be refused"),
      (error: CommError) => error,
    );

  test("more ranks than the machine has devices", async () => {
    const error = await failure({ like: "nccl-2.28" }, 9);
    expect(error).toMatchObject({ ...unsupported, field: "topology" });
    expect(error.message).toMatch(/9 ranks, has 8 GPUs/);
  });

  test("a version with unknown rules", async () => {
    expect(await failure({ like: "nccl-2.31" })).toMatchObject({ ...unsupported, field: "like" });
  });

  test.each([
    ["like", { like: "gloo" }],
    ["topology", { like: "nccl-2.28", topology: "h100x16" }],
    ["topology", { like: "nccl-2.28", topology: "constructor" }],
    ["like", { topology: "h200x8" }],
    ["like", { plan: { maxChannels: 1 } }],
  ])("%s: %o", async (field, options) => {
    expect(await failure(options)).toMatchObject({ code: "ERR_COMM_ARG", field });
  });
});

test("a split of hosts has the plans of so many hosts", async () => {
  const world = await createWorld({
    backend: sim({ like: "nccl-2.28", topology: "h200-hosts", plan: { algorithm: "Tree" } }),
    size: 7,
  });
  const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 8 } as const;
  const texts = await world.run(async (comm) => {
    const [ordered, reversed] = [
      await comm.split({ color: comm.rank % 2 }),
      await comm.split({ color: 0, key: -comm.rank }),
    ];
    return [ordered, reversed].map((half) => {
      const { claim, chunks } = half.explain(call);
      return `${claim} ${chunks[0]?.order.join("") ?? ""}`;
    });
  });
  await world.close();
  const [[even, unordered] = [], [odd] = []] = texts;
  expect(even).toMatch(/on 4 hosts of one GPU .* 1230$/);
  expect(odd).toMatch(/on 3 hosts of one GPU .* 120$/);
  expect(unordered).toMatch(/no claim is made/);
});
