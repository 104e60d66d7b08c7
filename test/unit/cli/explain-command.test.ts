import { type CollectiveName, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { cli } from "./harness.ts";

const ring = "explain allReduce --ranks 4 --count 10 --dtype float32 --op sum --algorithm ring";

test("the plan is printed", async () => {
  const { status, out } = await cli(ring);
  expect(status).toBe(0);
  expect(out).toMatch(/^allReduce float32\[10\] sum on 4 ranks: ring\n/);
  expect(out).toContain("µs predicted");
});

test("one rank is singular, and no elements are over no channels", async () => {
  const of = async (count: number): Promise<string[]> =>
    (await cli(`explain allReduce --ranks 1 --count ${count}`)).out.split("\n").slice(0, 2);
  expect(await of(0)).toEqual([
    "allReduce float32[0] sum on 1 rank: Copy",
    "  as NCCL 2.28.9 does it on h200x8",
  ]);
  expect(await of(4)).toEqual([
    "allReduce float32[4] sum on 1 rank: Copy",
    "  as NCCL 2.28.9 does it on h200x8, over 1 channel",
  ]);
});

test("one element: its chunk and the order in which it is folded", async () => {
  const { out } = await cli(`${ring} --element 5`);
  expect(out).toMatch(
    /^element 5 lies in chunk \d: elements \d\.\.\d\nvalue: .*r0.*\norder: \d, \d, \d, \d\n$/,
  );
  const { element, order } = JSON.parse((await cli(`${ring} --element 5 --json`)).out);
  expect(element).toBe(5);
  expect([...order].sort()).toEqual([0, 1, 2, 3]);
});

test.each([
  [100_000, ["predictedNs", "chunks"], "a program of more than 8,388,608 steps, the limit"],
  [1500, ["chunks"], "folds are read up to"],
])(
  "JSON leaves out what a program on %i ranks is too large for, with the reason",
  async (ranks, missing, reason) => {
    const { status, out } = await cli(`explain all-reduce -n ${ranks} --algorithm ring --json`);
    const document = JSON.parse(out);
    expect({ status, steps: document.steps }).toEqual({ status: 0, steps: 2 * (ranks - 1) });
    expect(["predictedNs", "chunks"].filter((name) => document[name] === undefined)).toEqual(
      missing,
    );
    expect(document.tooLarge).toContain(reason);
  },
);

test("JSON holds the facts", async () => {
  const { out } = await cli(`${ring} --json`);
  expect(JSON.parse(out)).toMatchObject({ collective: "allReduce", algorithm: "ring", ranks: 4 });
});

test("an element outside of the output is an error, not a crash", async () => {
  const { status, err } = await cli(`${ring} --element 10`);
  expect(status).toBe(2);
  expect(err).toContain("element 10 lies in no chunk");
  expect(err).not.toMatch(/^ {4}at /m);
});

test("a large program is predicted without its folds, and shown by its first and last steps", async () => {
  const { status, out } = await cli("explain allReduce --ranks 512 --count 262144");
  expect(status).toBe(0);
  expect(out).toContain("allReduce float32[262144] sum on 512 ranks: ring");
  expect(out).toContain("1022 steps, at most 2093056 bytes sent per rank");
  expect(out).toContain("512 chunks of the output of rank 0: --element I tells");
  expect(out.match(/^ +959 more steps$/gm)).toHaveLength(2);
  expect(out.split("\n").length).toBeLessThan(150);
});

describe("programs that are too large to be built", { timeout: 60_000 }, () => {
  const ranks = "explain all-reduce --ranks 5000";

  test("are shown by their closed form", async () => {
    const { status, out, err } = await cli(`${ranks} --count 5000`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out).toContain("9998 steps, about 39992 bytes sent per rank: the algorithm's closed");
    expect(out).toContain("a program of more than 8,388,608 steps, the limit\n");
    expect(out.split("\n").length).toBeLessThan(12);
  });

  test("have no elements: the limit is named", async () => {
    const { status, out, err } = await cli(`${ranks} --element 3`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain("UnsupportedError: allReduce by ring on 5000 ranks: a program of more");
  });

  test("nor have those with folds above the limit", async () => {
    const { status, err } = await cli("explain broadcast --ranks 5000 --element 3");
    expect(status).toBe(2);
    expect(err).toContain("1 lanes a rank, with folds read up to 4,096 ranks");
  });

  test.each(["1000000000000000", "100G"])("--like of %s elements", async (count) => {
    const symmetric = count === "100G" ? "--nccl symmetric" : "";
    const line = `explain all-reduce --like nccl-2.28 --count ${count} ${symmetric}`;
    const { status, err } = await cli(line);
    expect(status).toBe(2);
    expect(err).toMatch(/at least [\d,]+ pieces, the limit is 2,097,152/);
  });
});

test("progress is for terminals only, and is erased at the end", async () => {
  const { err } = await cli(ring, { terminal: true });
  expect(err).toContain("explaining allReduce on 4 ranks");
  expect(err.endsWith("\r\x1b[K")).toBe(true);
});

describe("NCCL's plans", () => {
  const planCommand = "explain all-reduce --like nccl-2.28 --count 1M";

  test("are outlined: channels, and the number of elements of each fold order", async () => {
    const { status, out } = await cli(planCommand);
    expect(status).toBe(0);
    const lines = out.split("\n");
    expect(lines.length).toBeLessThan(25);
    const orders = lines.filter((line) => / r\d \+ /.test(line));
    const elements = orders.map((line) => Number(line.trim().split(/\s+/)[0]));
    expect(orders).toHaveLength(8);
    expect(elements.reduce((sum, each) => sum + each)).toBe(2 ** 20);
    expect(out).toMatch(/^ {2}0\.\.22 +0\.\.1036287 +45056 +5632 +8 +1$/m);
    expect(out).toContain("--element I shows where an element lies");
  });

  test("an element is shown hop by hop, as the simulation folds it", async () => {
    for (const collective of ["allReduce", "reduceScatter", "allGather", "broadcast", "reduce"]) {
      const line = `explain ${collective} --like nccl-2.28 --count 70000 --ranks 5`;
      const plan = await createWorld({ backend: sim({ like: "nccl-2.28" }), size: 5 });
      const reduces = collective.toLowerCase().includes("reduce");
      const { chunks } = plan.explain({
        collective: collective as CollectiveName,
        dtype: "float32",
        op: reduces ? "sum" : undefined,
        count: 70000,
        root: 0,
      });
      await plan.close();
      for (const element of [0, 1234, 69999]) {
        const found = JSON.parse((await cli(`${line} --element ${element} --json`)).out);
        const chunk = chunks.find(
          ({ offset, length }) => element >= offset && element < offset + length,
        );
        const { offset, length, order } = found;
        expect({ offset, length, order }).toEqual({
          offset: chunk?.offset,
          length: chunk?.length,
          order: chunk?.order,
        });
        const { out } = await cli(`${line} --element ${element}`);
        const ranks = [...out.matchAll(/^ {2}\d {2}.*?r(\d)/gm)].map(([, rank]) => Number(rank));
        expect(ranks).toEqual(order);
      }
    }
  });

  test.each([
    ["-d float32", "", "+ r2: rounded to float32", 8],
    ["-d float32 -o avg", "", "+ r2 × 1/8: product and sum rounded once to float32", 8],
    [
      "-d bfloat16 -o avg",
      "protocol=LL128",
      "+ r2 × 1/8: product rounded to bfloat16, then the",
      8,
    ],
    ["-d float8e4m3 -o avg", "", "+ r2 × 1/8: product rounded to float8e4m3, then the sum", 8],
    ["-d float16 -o max", "", "max r2: exact", 8],
    ["-d int8 -o prod", "", "× r2: exact modulo 2^8", 8],
    ["-d uint64 -o avg", "", "÷ 8: toward zero", 9],
    ["-d half", "symmetric", "rounded to float16", 9],
    ["-d half", "symmetric", "+ r2: rounded to float32", 9],
  ])("rounding of %s %s", async (call, settings, text, hops) => {
    const nccl = settings === "" ? "" : `--nccl ${settings}`;
    const { out } = await cli(`explain all-reduce --like nccl-2.28 ${call} --element 3 ${nccl}`);
    expect(out).toContain(`  ${text}`);
    expect(out.match(/^ {2}\d {2}/gm)).toHaveLength(hops);
  });

  test("over LL128 rounding goes by position", async () => {
    const line = "explain all-reduce --like nccl-2.28 -d double -o avg --nccl protocol=LL128";
    const roundings = await Promise.all(
      [0, 1, 15].map(async (element) => {
        return JSON.parse((await cli(`${line} --element ${element} --json`)).out).rounding;
      }),
    );
    expect(roundings).toEqual(["fused", "separate", "fused"]);
  });

  test("a block is the rank's of a reduce-scatter, and the sender's of an all-gather", async () => {
    const scatter = "explain reduce-scatter --like nccl-2.28 --ranks 4 --element 3 --rank 2 --json";
    expect(JSON.parse((await cli(scatter)).out)).toMatchObject({ block: 2, order: [3, 0, 1, 2] });
    const gather = "explain all-gather --like nccl-2.28 --ranks 4 --count 10 --element 33 --json";
    expect(JSON.parse((await cli(gather)).out)).toMatchObject({ block: 3, element: 3, order: [3] });
  });

  test("an all-gather in symmetric memory names the kernel beside the Ring that it stands for", async () => {
    const text = "in symmetric memory its kernel copies the same blocks";
    const gather = "explain all-gather --like nccl-2.28 --ranks 4 --nccl symmetric";
    expect((await cli(gather)).out).toMatch(/4 ranks: Symmetric LL\n/);
    const large = JSON.parse((await cli(`${gather} --count 1M --json`)).out);
    expect(large).toMatchObject({ algorithm: "Symmetric LD", protocol: "LD" });
    const element = JSON.parse((await cli(`${gather} --count 1M --json --element 5`)).out);
    expect(element).toMatchObject({ algorithm: "Symmetric", protocol: "LD", channels: 24 });
    const named =
      "Symmetric LL with the blocks of Ring LL over 1 channel, as NCCL 2.28.9 on h200x8";
    expect((await cli(`${gather} --element 5`)).out).toContain(`on rank 0: ${named}\n`);
    const { out } = await cli(`${gather} --against NCCL_MAX_NCHANNELS=1`);
    expect(out).toContain(`plan     ${named}\nagainst  Ring LL over 1 channel,`);
    const limited = "explain all-gather --like nccl-2.28 --ranks 8 --count 4096 --nccl symmetric";
    expect((await cli(limited)).out).toMatch(/8 ranks: Symmetric LL\n/);
    expect((await cli(`${limited},maxChannels=1`)).out).toMatch(/8 ranks: Symmetric LD\n/);
    expect((await cli(gather)).out).toContain(`${text} as Ring LL over 1 channel\n`);
    expect((await cli("explain all-gather --like nccl-2.28 --ranks 4")).out).not.toContain(text);
    expect((await cli(gather.replace("4", "1"))).out).not.toContain(text);
    expect((await cli(`${gather} --count 0`)).out).not.toContain(text);
    const scatter = "explain reduce-scatter --like nccl-2.28 --ranks 4 --nccl symmetric";
    expect((await cli(scatter)).out).not.toContain(text);
  });

  test("--against counts the elements that differ, and shows the first under both", async () => {
    const { status, out } = await cli(`${planCommand} --against maxChannels=4`);
    expect(status).toBe(0);
    expect(out).toMatch(
      /^plan {5}Ring LL128 over 24 channels, .*\nagainst {2}Ring LL128 over 4 channels, .*\n86\.9 % of the elements may differ, first at 5632\n {2}plan {5}channel 0 of 24, .*fold order r2, .*\n {2}against {2}channel 0 of 4, .*fold order r1, .*\n$/,
    );
    const same = await cli(`${planCommand} --nccl NCCL_PROTO=ll128 --against default`);
    expect(same.out).toContain("every element is equal\n");
    const both = await cli(`${planCommand} --against symmetric --element 5376`);
    expect(both.out.match(/^element 5376 of allReduce/gm)).toHaveLength(2);
    expect((await cli(`${planCommand} --against symmetric --json`)).status).toBe(2);
  });
});

test("a document names its call", async () => {
  const ofCall = async (line: string) => JSON.parse((await cli(`explain ${line} --json`)).out);
  const sum = { collective: "allReduce", dtype: "float32", op: "sum", count: 1024 };
  expect(await ofCall("all-reduce")).toMatchObject({ ...sum, ranks: 8 });
  expect(await ofCall("all-reduce --algorithm ring --element 3")).toMatchObject({
    ...sum,
    chunk: 0,
  });
  expect(await ofCall("broadcast --root 2")).toMatchObject({ collective: "broadcast", root: 2 });
});

test("progress is whole on a terminal of unknown width", async () => {
  const { err } = await cli("explain all-reduce -n 9", { terminal: true, columns: () => 0 });
  expect(err.startsWith("\r\x1b[Kexplaining allReduce")).toBe(true);
});

test("progress stays within a line of the terminal", async () => {
  const { err } = await cli("explain all-reduce -n 9", { terminal: true, columns: () => 20 });
  expect(err).toBe("\r\x1b[Kexplaining allReduc\r\x1b[K");
});
