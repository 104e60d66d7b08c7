/** The cases of the conformance suite apart from their backends: options, and comparison without a test runner. */
import { createWorld, InvalidArgumentError } from "twinccl";
import type { Backend } from "twinccl/backend";
import { sim } from "twinccl/sim";
import {
  type ConformanceRanks,
  conformance,
  conformanceOfRanks,
  conformanceParts,
  type RanksUnderTest,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import {
  expectEqual,
  expectTrue,
  failureOf,
  textOf,
  within,
} from "../../../src/testing/conformance/expectations.ts";
import { bitsInOrder, sumInOrder } from "../../../src/testing/oracle/order.ts";
import { oracleFold } from "../../../src/testing/oracle/rounding.ts";

const capabilities = {
  hostArrays: true,
  virtualTime: true,
  deterministic: true,
  symmetricMemory: true,
  ownStreams: true,
};

describe("the list of cases", () => {
  const namesOf = (cases: readonly { readonly name: string }[]) => cases.map(({ name }) => name);
  const all = namesOf(conformance({ backend: () => sim(), capabilities }));

  test("has different names", () => {
    expect(all).toHaveLength(46);
    expect(new Set(all).size).toBe(all.length);
  });

  test("lacks only what the claims exclude", () => {
    const fewer = conformance({
      backend: () => sim(),
      capabilities: {
        ...capabilities,
        hostArrays: false,
        ownStreams: false,
        symmetricMemory: false,
        virtualTime: false,
      },
      foldsAsExplained: false,
    });
    expect(all.filter((name) => !namesOf(fewer).includes(name))).toEqual([
      "takes TypedArrays in place of buffers",
      "counts virtual time, which passes",
      "runs calls on streams of their own as on those of the ranks",
      "folds in the order that it explains, rounded at every hop",
      "runs calls in symmetric memory",
    ]);
  });

  test.each([[[]], [[0]], [[1.5]], [3]])("is refused for the sizes %o", (sizes) => {
    const options = { backend: () => sim(), capabilities, sizes: sizes as number[] };
    expect(() => conformance(options)).toThrow(InvalidArgumentError);
  });

  test.each(["backend", "capabilities"])("is refused without %s", (field) => {
    const options = { backend: () => sim(), capabilities, [field]: undefined };
    expect(() => conformance(options)).toThrow(
      expect.objectContaining({ code: "ERR_COMM_ARG", field }),
    );
  });

  test("is refused for an option that is not known", () => {
    const options = { backend: () => sim(), capabilities, size: 3 };
    expect(() => conformance(options as never)).toThrow(/sizes/);
  });

  test("fails a backend that does not declare the claimed capabilities", async () => {
    const claimed = { ...capabilities, symmetricMemory: false };
    const [first] = conformance({ backend: () => sim(), capabilities: claimed, sizes: [2] });
    await expect(first!.run()).rejects.toThrow(
      "capabilities.symmetricMemory: found true, needs false",
    );
  });
});

describe("the list of cases of ranks", () => {
  const right = { backend: "mine", sizes: [2], capabilities, use: () => Promise.reject() };

  test.each<[string, object]>([
    ["use", { use: undefined }],
    ["use", { use: 3 }],
    ["useCompared", { useCompared: "yes" }],
    ["backend", { backend: sim }],
    ["backend", { backend: undefined }],
    ["sizes", { sizes: [] }],
    ["sizes", { sizes: undefined }],
    ["capabilities", { capabilities: undefined }],
    ["sharesDevice", { sharesDevice: 1 }],
    ["size", { size: 3 }],
  ])("is refused for a wrong %s: %o", (field, wrong) => {
    const options = { ...right, ...wrong } as unknown as RanksUnderTest;
    expect(() => conformanceOfRanks(options)).toThrow(
      expect.objectContaining({ code: "ERR_COMM_ARG", field }),
    );
  });
});

test("all whole programs run, also those with counts of the ranks of a split", async () => {
  let ran = 0;
  const worlds = conformanceOfRanks({
    ...{ backend: "sim", capabilities, sizes: [2, 3] },
    use: async (size, use) => {
      const world = await createWorld({ backend: sim(), size });
      const each: ConformanceRanks["each"] = async (part, ...args) => {
        const play = conformanceParts[part] as (...given: unknown[]) => unknown;
        if (part === "programs") ran += 1;
        return (await world.run((comm) => play(comm, ...args))) as never;
      };
      try {
        return await use({ size, each });
      } finally {
        await world.close();
      }
    },
  });
  await worlds.find(({ name }) => name.startsWith("runs whole programs"))!.run();
  expect(ran).toBe(60);
});

describe("virtual time", () => {
  /** The simulation with another reading of its clocks. */
  const clocked = (now: (timePs: number) => number): Backend => {
    const backend = sim();
    return {
      ...backend,
      open: async (request) => {
        const session = await backend.open(request);
        const { clock } = session.scheduler;
        const own = clock!.now.bind(clock);
        clock!.now = (rank) => now(own(rank));
        return session;
      },
    };
  };

  test.each<[string, (timePs: number) => number, string | undefined]>([
    ["of the simulation", (timePs) => timePs, undefined],
    ["that is no number", () => Number.NaN, "are times of at least 0"],
    ["below 0", (timePs) => timePs - 1e9, "are times of at least 0"],
    ["that decreases", (timePs) => 1e15 - timePs, "times in order"],
    ["that stands still, as without a clock", () => 0, "a sum takes time"],
    ["that knows no work", (timePs) => timePs / 1000, "work of 1000 ns takes as long"],
  ])("%s", async (_, now, fault) => {
    const cases = conformance({ backend: () => clocked(now), capabilities, sizes: [1, 2] });
    const judged = cases.find(({ name }) => name === "counts virtual time, which passes");
    const found = await judged!.run().then(() => undefined, String);
    if (fault === undefined) expect(found).toBeUndefined();
    else expect(found).toContain(fault);
  });
});

describe("comparison", () => {
  test("has a text of its own for all plain data that differs", () => {
    const values = [
      ...[0, -0, 1, 1n, "1", true, null, undefined, Number.NaN, [], {}, [1], [1n], { a: 1 }],
      ...[{ a: "1" }, { b: 1 }, [[1]], "[1]", '"1"'],
    ];
    expect(new Set(values.map(textOf)).size).toBe(values.length);
  });

  test("takes fields in any order, and absent ones for undefined", () => {
    expectEqual("x", { a: 1, b: [2n] }, { b: [2n], c: undefined, a: 1 });
    expectEqual("x", Uint8Array.of(1, 2), [1, 2]);
    expect(() => expectEqual("sums", [1], [2])).toThrow("sums: found [1], needs [2]");
    expect(() => expectTrue("the sky is green", false)).toThrow("not so: the sky is green");
  });

  test("names the first difference of what is long", () => {
    const ranks = [0, 1].map(() => ({ bits: Array.from({ length: 1000 }, (_, at) => at) }));
    const found = structuredClone(ranks);
    found[1]!.bits[17] = 5;
    expect(() => expectEqual("on 2 ranks", found, ranks)).toThrow(
      /^on 2 ranks\[1\]\.bits\[17\]: found 5, needs 17$/,
    );
    expect(() => expectEqual("rows", found[0]!.bits, ranks[0]!.bits.slice(1))).toThrow(
      /^rows: found \[0, .{390,400}, needs \[1, .{390,400}$/,
    );
  });

  test("waits for an error, and not for ever", async () => {
    const error = new Error("mine");
    expect(await failureOf("work", Promise.reject(error))).toBe(error);
    await expect(failureOf("work", Promise.resolve(1))).rejects.toThrow("work: succeeded");
    await expect(within(1, new Promise(() => undefined))).rejects.toThrow("hung for 1 ms");
    expect(await within(1000, Promise.resolve(7))).toBe(7);
  });
});

describe("a sum in the order of a text", () => {
  // 2^24 + 1 rounds to 2^24, so that the order shows.
  const contents = [2 ** 24, 1, 1, -(2 ** 24)].map((value) => Float32Array.of(value));
  const sumOf = (fold: string): number => {
    const bits = sumInOrder([{ offset: 0, length: 1, fold }], contents);
    return new Float32Array(Uint32Array.from(bits).buffer)[0]!;
  };

  test.each([
    ["((r0 + r1) + r2) + r3", 0],
    ["r0 + r1 + r2 + r3", 0],
    ["(r1 + r2) + (r0 + r3)", 2],
    ["((r0 + r3) + r1) + r2", 2],
    ["r0 + (r1 + r2) + r3", 2],
    ["r1", 1],
  ])("%s", (fold, sum) => {
    expect(sumOf(fold)).toBe(sum);
  });

  test.each<[text: string, fault: string]>([
    ["(r0 + r1", 'found its end, needs "+" or ")"'],
    ["+ r1", "found + r1, needs a rank or a bracket"],
    ["", "found its end, needs a rank or a bracket"],
    ["r0 + r1) + r2", 'found ) + r2, needs "+", or its end'],
    ["r0 + r1 r2", 'found r2, needs "+", or its end'],
    ["r0 - r1", 'found - r1, needs "+", or its end'],
    ["r0 × r1", 'found × r1, needs "+", or its end'],
    ["r0 + r4", "found r4, needs a rank or a bracket"],
  ])("is refused for the text %o", (fold, fault) => {
    expect(() => sumOf(fold)).toThrow(`the fold "${fold}": ${fault}`);
  });
});

describe("a reduction in the order of a text", () => {
  // 1 + 2^-10, 1 + 2^-9 and 1 + 2^-8 in float16.
  const contents = [[0x3c01n], [0x3c02n], [0x3c04n]];
  const chunks = (fold: string) => [{ offset: 0, length: 1, fold }];

  test("is a product where the text says so", () => {
    const call = { dtype: "float16", op: "prod", contents } as const;
    const [found] = bitsInOrder({ ...call, chunks: chunks("(r2 × r0) × r1") });
    expect([...found!]).toEqual([0x3c07n]);
  });

  test("has every rounding of a product with a scalar", () => {
    const call = { dtype: "float16", op: "avg" } as const;
    const [found] = bitsInOrder({ ...call, contents, chunks: chunks("(r2 + r0) + r1") });
    const contributions = [0x3c04n, 0x3c01n, 0x3c02n];
    for (const rounding of ["fused", "separate"] as const) {
      expect(found).toContain(oracleFold({ ...call, ranks: 3, rounding, contributions }));
    }
    expect(found!.size).toBeLessThan(4);
  });
});
