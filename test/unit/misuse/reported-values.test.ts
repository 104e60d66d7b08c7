/** Errors quote found values as written: a text in quotes and a bigint with its n differ from the needed number. */
import { asDType, bytesOf, connect, createWorld, firstAvailable } from "twinccl";
import { graphFile, h200x8, ncclPlan, resolvePin, withRing } from "twinccl/algorithms";
import { bench, sizeText } from "twinccl/bench";
import { nccl } from "twinccl/nccl";
import {
  crossEntropy,
  decodeTensors,
  encodeTensors,
  Mesh,
  Optimizer,
  ParameterServer,
  ParameterSet,
  sgd,
} from "twinccl/parallel";
import { transformer } from "twinccl/parallel/models";
import { failAt, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

// biome-ignore lint/suspicious/noExplicitAny: wrong values are the point
type Wrong = any;

const backend = sim();
const two = () => new Float32Array(2);
const sizes = { min: 8, max: 8, factor: 2 };
const question = { collective: "allReduce", dtype: "float32", op: "sum" };

async function refusal(work: () => unknown): Promise<string> {
  const error = await Promise.resolve()
    .then(work)
    .then(() => new Error("nothing was refused"))
    .catch((thrown: unknown) => thrown as Error);
  return error.message;
}

/** The errors on two ranks, one communicator for all cases. */
async function onRanks(cases: readonly (readonly [string, (comm: Wrong) => unknown])[]) {
  const world = await createWorld({ backend, size: 2 });
  const messages = await world.run(async (comm) => {
    const lines: string[] = [];
    for (const [, work] of cases) lines.push(await refusal(() => work(comm)));
    return lines;
  });
  await world.close();
  return messages[0] as string[];
}

const exchange = (comm: Wrong, more: object) =>
  comm.allToAllv({ send: two(), sendCounts: [1, 1], ...more });

const values: readonly (readonly [string, (comm: Wrong) => unknown])[] = [
  ['broadcast: root: found "0", needs a rank', (c) => c.broadcast({ recv: two(), root: "0" })],
  ["broadcast: root: found 0n, needs a rank", (c) => c.broadcast({ recv: two(), root: 0n })],
  ['send: peer: found "1", needs a rank', (c) => c.send({ send: two(), peer: "1" })],
  ['sendCounts[0]: found "1", needs an integer', (c) => exchange(c, { sendCounts: ["1", 1] })],
  ["sendCounts[1]: found 1n, needs an integer", (c) => exchange(c, { sendCounts: [1, 1n] })],
  [
    "sendCounts: found an Int32Array, needs an array of 2 counts, one a rank\nhint: write Array.from(sendCounts)",
    (c) => exchange(c, { sendCounts: Int32Array.of(1, 1) }),
  ],
  ["sendCounts: found an object, needs", (c) => exchange(c, { sendCounts: {} })],
  ['split: color: found "0", needs an integer', (c) => c.split({ color: "0" })],
  ["split: color: found 0n, needs an integer", (c) => c.split({ color: 0n })],
  ['alloc: found length "4", needs', (c) => c.alloc("float32", "4")],
  ["alloc: found length 4n, needs", (c) => c.alloc("float32", 4n)],
  ["alloc: found length an array, needs", (c) => c.alloc("float32", [4, 4])],
  ["alloc: 4 is no dtype", (c) => c.alloc(4, "float32")],
  ['alloc: "float" is no dtype', (c) => c.alloc("float", 4)],
  ['barrier: timeoutMs: found "1s", needs', (c) => c.barrier({ timeoutMs: "1s" })],
  ['fill: found "1", float32 needs a number', (c) => c.alloc("float32", 4).fill("1")],
  ["fill: found 1n, float32 needs a number", (c) => c.alloc("float32", 4).fill(1n)],
  ['work: durationNs: found "1", needs', (c) => c.work("1")],
  ['explain: count: found "3", needs', (c) => c.explain({ ...question, count: "3" })],
  ['explain: root: found "0", needs', (c) => c.explain({ ...question, root: "0" })],
  ['explain: collective: found "ring", needs', (c) => c.explain({ collective: "ring" })],
  ['Mesh.create: data: found "2", needs', (c) => Mesh.create(c, { data: "2" } as Wrong)],
  [
    "copyFrom: found an array, float32 needs Float32Array\nhint: write Float32Array.from(array)",
    (c) => c.alloc("float32", 3).copyFrom([1, 2, 3]),
  ],
  ["copyTo: found undefined, float32 needs Float32Array", (c) => c.alloc("float32", 3).copyTo()],
  ['allReduce: op: "2" is no operator', (c) => c.allReduce({ send: two(), op: "2" })],
  ["allReduce: op: an object is no operator", (c) => c.allReduce({ send: two(), op: {} })],
  ['preMul is "2", not a number', (c) => c.allReduce({ send: two(), op: { preMul: "2" } })],
];

const elsewhere: readonly (readonly [string, () => unknown])[] = [
  ['bytesOf: "float" is no dtype', () => bytesOf("float" as Wrong)],
  ["bytesOf: undefined is no dtype", () => bytesOf(undefined as Wrong)],
  ['createWorld: size: found "2", needs', () => createWorld({ backend, size: "2" as Wrong })],
  ["createWorld: size: found 2n, needs", () => createWorld({ backend, size: 2n as Wrong })],
  ['connect: size: found "1", needs', () => connect({ backend, size: "1" as Wrong })],
  [
    'sizes: min: found "8", needs',
    () =>
      bench({ backend, collective: "allReduce", ranks: 2, sizes: { ...sizes, min: "8" } } as Wrong),
  ],
  [
    'bench: ranks: found "2", needs',
    () => bench({ backend, collective: "allReduce", ranks: "2", sizes } as Wrong),
  ],
  ['failAt: rank: found "0", needs', () => failAt("0" as Wrong, 0)],
  ['sim: seed: found "7", needs', () => sim({ seed: "7" as Wrong })],
  ["nccl: devices: found 0n, needs", () => nccl({ devices: [0n as Wrong] })],
  ['sgd: learningRate: found "0.1", needs', () => sgd({ learningRate: "0.1" as Wrong })],
];

/** A value that has no text. */
const bare: Wrong = Object.create(null);

const header = (json: string): Uint8Array =>
  Uint8Array.of(json.length, 0, 0, 0, 0, 0, 0, 0, ...new TextEncoder().encode(json));

const declared = (more: object): unknown =>
  new ParameterSet([{ name: "w", shape: [2], ...more } as Wrong]);

const optimizer = (): Optimizer => new Optimizer(new ParameterSet([]), sgd({ learningRate: 1 }));

const scored = { logits: two(), targets: [0], classes: 2 };

const servedBy = (server: unknown) => (comm: Wrong) =>
  ParameterServer.create(comm, new ParameterSet([]), { server } as Wrong);

const textless: readonly (readonly [string, () => unknown])[] = [
  ["bytesOf: an object is no dtype", () => bytesOf(bare)],
  ["bytesOf: an array is no dtype", () => bytesOf(["float32"] as Wrong)],
  [
    "allReduce: send: an object is no dtype",
    async () => {
      const comm = await connect({ backend });
      await comm.allReduce({ send: asDType(two() as Wrong, bare), op: "sum" });
    },
  ],
  [
    "firstAvailable: backends[0].name: found an object, needs a string",
    () => firstAvailable({ ...backend, name: bare }),
  ],
  [
    "createWorld: backend.open: found undefined, needs a function",
    () => createWorld({ backend: { ...backend, open: undefined } as Wrong, size: 2 }),
  ],
  [
    "firstAvailable: backends[0].probe: found an object, needs a function",
    () => firstAvailable({ ...backend, probe: bare }),
  ],
  [
    "connect: backend.join: found 5, needs a function",
    () => connect({ backend: { ...backend, join: 5 } as Wrong }),
  ],
  ["toSvg: title: found an object, needs a string", () => new Trace().toSvg(bare)],
  ["ParameterSet: declarations[0].name: found an object, needs", () => declared({ name: bare })],
  ['parameter 0 "w": dtype: found an object, needs', () => declared({ dtype: bare })],
  ['parameter 0 "w": shape: found an object, needs', () => declared({ shape: bare })],
  ['parameter 0 "w": shape: found [2, an object], needs', () => declared({ shape: [2, bare] })],
  ["parameter an object: no parameter has this name", () => new ParameterSet([]).get(bare)],
  [
    "crossEntropy: targets[0]: found an object, needs",
    () => crossEntropy({ ...scored, targets: [bare] }),
  ],
  [
    "crossEntropy: weights[0]: found an object, needs",
    () => crossEntropy({ ...scored, weights: [bare, 1] }),
  ],
  [
    "optimizer: steps: found an object, needs",
    () => optimizer().restore({ ...optimizer().state(), values: { steps: bare } }),
  ],
  [
    "withRing: order: found [0, 1n, an object], needs every rank of 0..1 once",
    () => withRing(h200x8(2), [0, 1n, bare] as Wrong),
  ],
  [
    "encodeTensors: w: found a Float32Array of an object, needs",
    () =>
      encodeTensors({
        tensors: { w: { dtype: "float32", shape: bare, data: two() } },
        metadata: {},
      }),
  ],
  [
    'decodeTensors: tensor "w" has the dtype an object',
    () => decodeTensors(header('{"w":{"dtype":{"toString":1}}}')),
  ],
  [
    "transformer: width: found an object, needs",
    () => transformer({ vocabulary: 2, context: 2, width: bare, heads: 1, blocks: 1 }),
  ],
  ["sizeText: bytes: found an object, needs a number", () => sizeText(bare)],
];

describe("found", () => {
  test.each(textless)("%s", async (line, work) => {
    expect(await refusal(work)).toContain(line);
  });

  test("the first of many values", async () => {
    const machine = h200x8(2);
    const long = new Array(100_000).fill(0);
    const [channel] = machine.channels;
    const topology = { ...machine, channels: [{ ...channel, ring: long }] } as Wrong;
    const call = { version: "2.28", collective: "allReduce", dtype: "float32", op: "sum" } as const;
    const zeros = new Array(32).fill(0).join(", ");
    for (const work of [
      () => ncclPlan({ ...call, topology, count: 8 }),
      () => withRing(machine, long),
      () => graphFile(machine, long),
      () => resolvePin({ rings: long }),
      () => declared({ shape: long.fill(-1, 32) }),
    ]) {
      expect(await refusal(work)).toContain(`found [${zeros}, and 99968 more], needs`);
    }
  });

  test("a server without a text", async () => {
    const [message] = await onRanks([["", servedBy(bare)]]);
    expect(message).toContain("ParameterServer.create: server: found an object, needs");
  });

  test("on a rank", async () => {
    const messages = await onRanks(values);
    for (const [at, [line]] of values.entries()) expect(messages[at]).toContain(line);
  });

  test.each(elsewhere)("%s", async (line, work) => {
    expect(await refusal(work)).toContain(line);
  });
});

describe("the named field and method are the caller's:", () => {
  test("toHost after the end", async () => {
    const world = await createWorld({ backend, size: 1 });
    const [kept] = await world.run((comm) => [comm.alloc("int8", 2), comm.alloc("int8", 2)]);
    const [disposed, closed] = kept as NonNullable<typeof kept>;
    disposed?.dispose();
    await expect(disposed?.toHost()).rejects.toThrow(/^toHost: the buffer was disposed/);
    await world.close();
    await expect(closed?.toHost()).rejects.toThrow(/^toHost: the world on sim:0 was closed/);
  });

  test("the stream of nccl", () => {
    const opened = (options: object) => () => nccl(options as Wrong);
    expect(opened({ stream: 0 })).toThrow(/^nccl: stream: found 0, needs the handle of a CUDA/);
    expect(opened({ stream: 0 })).toThrow(expect.objectContaining({ field: "stream" }));
    expect(opened({ stream: 0n })).toThrow(/^nccl: stream: found the default stream 0, needs/);
    expect(opened({ streams: [5n, 5n] })).toThrow(/^nccl: streams: found 5 twice/);
  });

  test("a world without a backend", async () => {
    const text = /^createWorld: backend: found undefined, needs a backend value\n.*pass sim\(\)/;
    await expect(createWorld({ size: 2 } as Wrong)).rejects.toThrow(text);
    const words = /^connect: backend: found "sim", needs a backend value\n.*pass tcp\(\)/;
    await expect(connect({ backend: "sim" } as Wrong)).rejects.toThrow(words);
  });

  test("counts, where no offsets were given", async () => {
    const [short, far] = await onRanks([
      ["", (c) => exchange(c, { sendCounts: [1, 2] })],
      ["", (c) => exchange(c, { sendOffsets: [0, 2] })],
    ]);
    expect(short).toContain(
      "allToAllv: sendCounts[1]: the block ends at element 3, needs one inside the buffer's 2 elements",
    );
    expect(far).toContain("allToAllv: sendOffsets[1]: the block ends at element 3, needs");
  });

  test("a name that explain does not know", async () => {
    const [size] = await onRanks([["", (c) => c.explain({ ...question, size: 3 })]]);
    expect(size).toMatch(/^explain: size: it is not known here, needs one of collective, dtype,/);
    const [typo] = await onRanks([["", (c) => c.explain({ ...question, counted: 3 })]]);
    expect(typo).toMatch(/needs one of count, counts, collective,/);
  });

  test("the communicator with an invalid rank", async () => {
    const world = await createWorld({ backend, size: 3 });
    const messages = await world.run(async (comm) => {
      const half = await comm.split({ color: Math.min(comm.rank, 1) });
      return refusal(() => half.broadcast({ recv: two(), root: 2 }));
    });
    await world.close();
    expect(messages).toEqual([
      'broadcast: root: found 2, needs a rank in 0..0 of "world/0"',
      'broadcast: root: found 2, needs a rank in 0..1 of "world/1"',
      'broadcast: root: found 2, needs a rank in 0..1 of "world/1"',
    ]);
  });
});
