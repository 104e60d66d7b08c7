/** The claims of docs/numerics.md, a test a row. */
import { bytesOf, type Communicator, createWorld, type DType, type ReduceOp } from "twinccl";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import { type Bits, bitsOf, reduced, wide } from "./reduced.ts";

async function onRanks<T>(
  size: number,
  program: (comm: Communicator) => PromiseLike<T>,
  options: SimOptions = {},
): Promise<T[]> {
  const world = await createWorld({ backend: sim(options), size });
  const results = await world.run(program);
  await world.close();
  return results;
}

test("copies keep every byte", async () => {
  // Signalling NaNs with payloads.
  const bits = (rank: number): number[] => [0x7f80_0001 + rank, 0xffc0_1234 + rank, 0x8000_0000];
  const results = await onRanks(3, async (comm) => {
    const send = () => new Float32Array(new Uint32Array(bits(comm.rank)).buffer);
    const [gathered, blocks, copy, passed] = [9, 9, 3, 3].map((length) => new Float32Array(length));
    await comm.allGather({ send: send(), recv: gathered as Float32Array });
    const three = new Float32Array(9);
    for (let rank = 0; rank < 3; rank++) three.set(send(), 3 * rank);
    await comm.allToAll({ send: three, recv: blocks as Float32Array });
    (copy as Float32Array).set(send());
    await comm.broadcast({ recv: copy as Float32Array, root: 1 });
    const next = (comm.rank + 1) % 3;
    await comm.sendRecv({
      send: send(),
      to: next,
      recv: passed as Float32Array,
      from: (next + 1) % 3,
    });
    return [gathered, blocks, copy, passed].map((array) => [...new Uint32Array(array!.buffer)]);
  });
  const all = [0, 1, 2].flatMap(bits);
  expect(results).toEqual([0, 1, 2].map((rank) => [all, all, bits(1), bits((rank + 2) % 3)]));
});

test("a reduction is the fold that explain shows", async () => {
  const settings: SimOptions[] = [
    {},
    { algorithms: { allReduce: "chain" } },
    { like: "nccl-2.28", plan: { algorithm: "Tree" } },
    { like: "nccl-2.28", plan: { protocol: "LL128", maxChannels: 3 } },
  ];
  for (const options of settings) {
    for (const [op, apply] of [
      ["sum", (a: number, b: number) => a + b],
      ["prod", (a: number, b: number) => a * b],
    ] as const) {
      const inputs = Array.from({ length: 5 }, (_, rank) => wide(700, rank));
      const world = await createWorld({ backend: sim(options), size: 5 });
      const plan = world.explain({ collective: "allReduce", dtype: "float32", op, count: 700 });
      await world.close();
      const expected = new Float32Array(700).map((_, i) => {
        const [first = 0, ...rest] = plan.chunkOf(i).order;
        const value = (rank: number): number => inputs[rank]?.[i] as number;
        return rest.reduce((acc, rank) => Math.fround(apply(acc, value(rank))), value(first));
      });
      const [found] = await reduced("float32", op, inputs.map(bitsOf), options);
      expect(found).toEqual(bitsOf(expected));
    }
  }
});

test("worlds of up to 8 ranks follow NCCL", async () => {
  const question = { collective: "allReduce", dtype: "float32", op: "sum", count: 1000 } as const;
  for (const [options, name] of [
    [{}, "Ring LL"],
    [{ like: "nccl-2.28" }, "Ring LL"],
    [{ like: "nccl-2.28", plan: { algorithm: "Tree", protocol: "Simple" } }, "Tree Simple"],
  ] as const) {
    const [plan] = await onRanks(8, async (comm) => comm.explain(question), options);
    expect(plan?.algorithm).toBe(name);
    expect(plan?.claim).toMatch(/^the same bits as NCCL 2\.28\.9 on h200x8/);
  }
});

test("all ranks hold the same bits", async () => {
  for (const op of ["sum", "prod", "avg", { preMul: 0.3 }] as ReduceOp[]) {
    const inputs = Array.from({ length: 7 }, (_, rank) => bitsOf(wide(999, rank)));
    const [first, ...others] = await reduced("float32", op, inputs);
    for (const other of others) expect(other).toEqual(first);
  }
});

test("nothing but the plan and the inputs matters", async () => {
  const inputs = Array.from({ length: 6 }, (_, rank) => bitsOf(wide(500, rank)));
  const [first] = await reduced("float32", "sum", inputs);
  const link = { latencyNs: 1, gigabytesPerSecond: 1 };
  for (const options of [
    { seed: 1 },
    { seed: 99, link },
    { trace: new Trace() },
    { strict: true },
  ]) {
    expect((await reduced("float32", "sum", inputs, options))[3]).toEqual(first);
  }
});

test("places of buffers do not matter", async () => {
  const results = await onRanks(5, async (comm) => {
    const found: Bits[] = [];
    for (const offset of [0, 1, 3]) {
      for (const inPlace of [false, true]) {
        const send = comm.alloc("float32", 400 + offset).subarray(offset);
        send.copyFrom(wide(400, comm.rank));
        const recv = inPlace ? send : comm.alloc("float32", 402).subarray(2);
        await comm.allReduce({ send, recv, op: "sum" });
        found.push(bitsOf(await recv.toHost()));
      }
    }
    return found;
  });
  for (const [first, ...others] of results) for (const bits of others) expect(bits).toEqual(first);
});

test("unequal blocks are reduces", async () => {
  const sendCounts = [300, 0, 7, 1000];
  const results = await onRanks(4, async (comm) => {
    const send = wide(1307, comm.rank);
    const recv = new Float32Array(sendCounts[comm.rank] as number);
    await comm.reduceScatterv({ send, recv, sendCounts, op: "avg" });
    const single = new Float32Array(recv.length);
    for (const [root, offset] of [
      [0, 0],
      [2, 300],
      [3, 307],
    ] as const) {
      const block = send.subarray(offset, offset + (sendCounts[root] as number));
      await comm.reduce({
        send: block,
        ...(root === comm.rank && { recv: single }),
        root,
        op: "avg",
      });
    }
    return [bitsOf(recv), bitsOf(single)];
  });
  for (const [scattered, reduces] of results) expect(scattered).toEqual(reduces);
});

test("symmetric sums round once", async () => {
  const sums = await onRanks(3, async (comm) => {
    const sum = async (symmetric: boolean): Promise<number> => {
      const send = comm.alloc("float16", 64, { symmetric });
      send.copyFrom(new Uint16Array(64).fill(comm.rank === 0 ? 0x6800 : 0x3c00));
      await comm.allReduce({ send, op: "sum" });
      return (await send.toHost())[24] as number;
    };
    return [await sum(true), await sum(false)];
  });
  // 2048 + 1 + 1: hop by hop it stays at 2048.
  for (const sum of sums) expect(sum).toEqual([0x6801, 0x6800]);
});

/** x·s + acc with one rounding, for values with exponents close together: the exact sum fits into a double. */
const fused = (x: number, s: number, acc: number): number => Math.fround(x * s + acc);
const apart = (x: number, s: number, acc: number): number => Math.fround(Math.fround(x * s) + acc);

test("averages are fused where NCCL fuses", async () => {
  const third = Math.fround(1 / 3);
  const count = 600;
  const inputs = [0, 1, 2].map((rank) =>
    new Float32Array(count).map((_, i) => 1 + ((i * 7919 + rank * 104_729) % 65_521) / 65_536),
  );
  for (const protocol of ["LL", "LL128", "Simple"] as const) {
    const options = { like: "nccl-2.28", plan: { protocol } } as const;
    const world = await createWorld({ backend: sim(options), size: 3 });
    const plan = world.explain({ collective: "allReduce", dtype: "float32", op: "avg", count });
    await world.close();
    let differing = 0;
    const expected = new Float32Array(count).map((_, i) => {
      const { order, offset } = plan.chunkOf(i);
      const bytes = (4 * (i - offset)) % 960;
      const whole = [7, 15, 23, 31].includes(Math.floor(bytes / 16));
      const hop = protocol !== "LL128" || bytes % 16 < 8 || whole ? fused : apart;
      const fold = (way: typeof fused): number =>
        order
          .slice(1)
          .reduce(
            (acc, rank) => way(inputs[rank]?.[i] as number, third, acc),
            Math.fround((inputs[order[0] as number]?.[i] as number) * third),
          );
      if (fold(fused) !== fold(apart)) differing++;
      return fold(hop);
    });
    expect(differing).toBeGreaterThan(50);
    const [found] = await reduced("float32", "avg", inputs.map(bitsOf), options);
    expect(found).toEqual(bitsOf(expected));
  }
});

test("one-byte floats saturate", async () => {
  const sum = async (dtype: DType, ...bits: number[]): Promise<number | undefined> =>
    (
      await reduced(
        dtype,
        "sum",
        bits.map((value) => [value]),
      )
    )[0]?.[0];
  expect(await sum("float8e4m3", 0x7e, 0x7e)).toBe(0x7e);
  expect(await sum("float8e5m2", 0x7b, 0x7b)).toBe(0x7b);
  expect(await sum("float8e5m2", 0x7c, 0x00)).toBe(0x7b);
  // 1 + 0.0625 is a tie and goes to even,.
  expect(await sum("float8e4m3", 0x18, 0x38)).toBe(0x38);
});

test("integers wrap", async () => {
  const of = async (op: ReduceOp, ...values: number[]): Promise<number | undefined> =>
    (
      await reduced(
        "int8",
        op,
        values.map((value) => [value & 0xff]),
      )
    )[0]?.[0];
  expect(await of("sum", 100, 100, 100)).toBe(44);
  expect(await of("avg", 100, 100, 100)).toBe(14);
  expect(await of("avg", -100, -100, -100)).toBe(-14 & 0xff);
  expect(await of("prod", 100, 3)).toBe(44);
});

test("min and max ignore NaN", async () => {
  for (const [dtype, nan, one, two] of [
    ["float32", 0x7fc0_0000, 0x3f80_0000, 0x4000_0000],
    ["bfloat16", 0x7fc0, 0x3f80, 0x4000],
    ["float8e4m3", 0x7f, 0x38, 0x40],
  ] as const) {
    const of = async (op: ReduceOp, ...bits: number[]): Promise<number | undefined> =>
      (
        await reduced(
          dtype,
          op,
          bits.map((value) => [value]),
        )
      )[1]?.[0];
    expect(await of("min", nan, two, one)).toBe(one);
    expect(await of("max", one, two, nan)).toBe(two);
    expect(((await of("max", nan, nan)) as number) & nan).toBe(nan);
  }
});

test("subnormal numbers are kept", async () => {
  for (const dtype of ["float32", "float16", "bfloat16", "float8e5m2"] as const) {
    expect(bytesOf(dtype)).toBeLessThan(8);
    expect((await reduced(dtype, "sum", [[1], [1], [1]]))[0]?.[0]).toBe(3);
    expect((await reduced(dtype, "min", [[2], [1]]))[0]?.[0]).toBe(1);
  }
});

test("splits in order are claimed", async () => {
  const claims = await onRanks(6, async (comm) => {
    const part = await comm.split({ color: comm.rank % 2, key: comm.rank });
    return part.explain({ collective: "reduce", dtype: "float16", op: "sum", count: 3 }).claim;
  });
  for (const claim of claims) expect(claim).toMatch(/^the same bits as NCCL/);
});
