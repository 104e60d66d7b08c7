/** The limits of docs/numerics.md's claims, and open questions, a test a row. */
import { type CommError, createWorld, type Question } from "twinccl";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";
import { canonicalNaN } from "../../../src/algorithms/index.ts";
import { joinedText } from "../../support/graph-files.ts";
import { reduced } from "./reduced.ts";

const question: Question = { collective: "allReduce", dtype: "float32", op: "sum", count: 100 };
const nothing = /no claim is made about NCCL's bits/;

async function claimOf(options: SimOptions, size: number): Promise<string> {
  const world = await createWorld({ backend: sim(options), size });
  const { claim } = world.explain(question);
  await world.close();
  return claim;
}

const refusalOf = (call: () => PromiseLike<unknown>): Promise<CommError> =>
  (async () => call())().then(
    () => expect.fail("it should be refused"),
    (error: CommError) => error,
  );

test("in-switch reduction is excluded", async () => {
  for (const op of ["sum", "max"] as const) {
    const world = await createWorld({ backend: sim(), size: 8 });
    expect(world.explain({ ...question, op, count: 1 << 20 }).claim).toMatch(
      /without in-switch reduction$/,
    );
    await world.close();
  }
});

test("larger worlds claim nothing", async () => {
  expect(await claimOf({}, 8)).not.toMatch(nothing);
  expect(await claimOf({}, 9)).toMatch(nothing);
  const error = await refusalOf(() =>
    createWorld({ backend: sim({ like: "nccl-2.28" }), size: 9 }),
  );
  expect(error.code).toBe("ERR_COMM_UNSUPPORTED");
});

test("chosen algorithms claim nothing", async () => {
  expect(await claimOf({ algorithms: { allReduce: "ring" } }, 4)).toMatch(nothing);
});

test("splits out of order claim nothing", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace }), size: 4 });
  const claims = await world.run(async (comm) => {
    const part = await comm.split({ color: 0, key: -comm.rank });
    await part.allReduce({ send: new Float32Array(4), op: "sum" });
    return part.explain(question).claim;
  });
  await world.close();
  for (const claim of claims) expect(claim).toMatch(nothing);
  expect(trace.toText()).toContain("allReduce float32[4] ring unclaimed\n");
});

test("parts of graph files claim nothing", async () => {
  const trace = new Trace();
  const channels = [[0, 1]];
  const xml = joinedText(channels, channels, 1);
  const backend = sim({ like: "nccl-2.28", topology: { xml }, trace });
  const world = await createWorld({ backend, size: 4 });
  const claims = await world.run(async (comm) => {
    const part = await comm.split({ color: comm.rank % 2 });
    await part.allReduce({ send: new Float32Array(4), op: "sum" });
    const buffers = { send: new Float32Array(3), recv: new Float32Array(part.rank + 1) };
    await part.reduceScatterv({ ...buffers, sendCounts: [1, 2], op: "sum" });
    return part.explain(question).claim;
  });
  await world.close();
  for (const claim of claims) expect(claim).toMatch(nothing);
  expect(trace.toText()).toContain("allReduce float32[4] ring unclaimed\n");
  expect(trace.toText()).toMatch(/reduceScatterv float32\[\d\] \w+ per root unclaimed\n/);
});

test("differing scalars claim nothing", async () => {
  for (const differ of [0, 1]) {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size: 2 });
    await world.run((comm) =>
      comm.allReduce({ send: new Float32Array(4), op: { preMul: 2 + differ * comm.rank } }),
    );
    await world.close();
    expect(trace.toText().includes(" unclaimed\n")).toBe(differ === 1);
  }
});

test("misaligned symmetric sums are refused", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const errors = await world.run((comm) => {
    const send = comm.alloc("float16", 9, { symmetric: true }).subarray(1);
    return refusalOf(() => comm.allReduce({ send, op: "sum" }));
  });
  await world.close();
  for (const error of errors) {
    expect(error.code).toBe("ERR_COMM_UNSUPPORTED");
    expect(error.message).toMatch(/no multiple of 4.*NCCL 2\.28\.9 gives wrong bits/);
  }
});

test("symmetric blocks between wrong places are refused", async () => {
  const like = "nccl-2.28.3" as "nccl-2.28";
  const world = await createWorld({ backend: sim({ like }), size: 2 });
  const [error] = await world.run(async (comm) => {
    const send = comm.alloc("float32", 2 * 8193, { symmetric: true });
    const recv = comm.alloc("float32", 8193, { symmetric: true });
    return refusalOf(() => comm.reduceScatter({ send, recv, op: "sum" }));
  });
  await world.close();
  expect(error?.code).toBe("ERR_COMM_UNSUPPORTED");
  expect(error?.message).toMatch(/blocks of 32772 bytes, no multiple of 8: NCCL 2\.28\.3 moves/);
});

test("other versions are refused", async () => {
  for (const like of ["nccl-2.26", "nccl-2.31", "torch-2.9", "torch-2.15"]) {
    const options = { like } as unknown as SimOptions;
    const error = await refusalOf(async () => createWorld({ backend: sim(options), size: 2 }));
    expect(error).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", field: "like" });
  }
});

test("a NaN of a reduction is canonical", async () => {
  for (const [dtype, payload] of [
    ["float32", 0xff81_2345],
    ["float16", 0xfc01],
    ["bfloat16", 0xff81],
    ["float8e4m3", 0xff],
  ] as const) {
    for (const op of ["sum", "prod", "avg"] as const) {
      const [bits] = await reduced(dtype, op, [[payload], [payload], [0]]);
      expect(bits?.map(BigInt)).toEqual([canonicalNaN[dtype]]);
    }
  }
});

test("minus zero is below zero", async () => {
  for (const [dtype, minus] of [
    ["float32", 0x8000_0000],
    ["float16", 0x8000],
    ["bfloat16", 0x8000],
    ["float8e5m2", 0x80],
  ] as const) {
    for (const inputs of [
      [[0], [minus]],
      [[minus], [0]],
    ]) {
      expect((await reduced(dtype, "min", inputs))[0]).toEqual([minus]);
      expect((await reduced(dtype, "max", inputs))[0]).toEqual([0]);
    }
  }
});
