/** Phantom data: buffers have sizes and no contents, and a program takes the virtual time that it takes with data. */
import { type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { catalogue, linkOf, predict } from "twinccl/algorithms";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { isAll } from "../../../support/seed.ts";

const gibibyte = 2 ** 30;

/** Every kind of call once, with lengths that do not divide evenly, and no look at any content. */
async function everyCall(comm: Communicator): Promise<void> {
  const { rank, size } = comm;
  const next = (rank + 1) % size;
  const previous = (rank + size - 1) % size;
  const length = 24 * size + 5;
  const alloc = (elements: number): DeviceBuffer<"float32"> =>
    comm.alloc("float32", elements).fill(rank);
  const whole = alloc(length);
  const equal = alloc(3 * size);
  const block = alloc(3);
  const counts = Array.from({ length: size }, (_, peer) => peer % 3);
  const total = counts.reduce((sum, count) => sum + count, 0);
  await comm.allReduce({ send: whole, op: "sum" });
  await comm.allReduce({ send: whole, recv: alloc(length), op: { preMul: 3 } });
  await comm.reduce({ send: whole, op: "avg", root: 1, ...(rank === 1 ? { recv: whole } : {}) });
  await comm.broadcast(rank === 1 ? { send: whole, root: 1 } : { recv: whole, root: 1 });
  await comm.allGather({ send: block, recv: equal });
  await comm.allGatherv({ send: alloc(rank % 3), recv: alloc(total), recvCounts: counts });
  await comm.reduceScatter({ send: equal, recv: block, op: "max" });
  await comm.reduceScatterv({
    send: alloc(total),
    recv: alloc(rank % 3),
    sendCounts: counts,
    op: "min",
  });
  await comm.allToAll({ send: equal, recv: alloc(3 * size) });
  const sendCounts = counts.map((count) => count * (rank + 1));
  const sent = alloc(sendCounts.reduce((sum, count) => sum + count, 0));
  const taken = await comm.allToAllv({ send: sent, sendCounts });
  expect(taken.recvCounts).toEqual(counts.map((_, peer) => (rank % 3) * (peer + 1)));
  expect(taken.recv.length).toBe(taken.recvCounts.reduce((sum, count) => sum + count, 0));
  await comm.gather({ send: block, root: 1, ...(rank === 1 ? { recv: equal } : {}) });
  await comm.scatter({ recv: block, root: 1, ...(rank === 1 ? { send: equal } : {}) });
  await comm.sendRecv({ send: whole, to: next, recv: alloc(length), from: previous });
  await comm.group(() => {
    comm.send({ send: block, peer: next });
    comm.recv({ recv: alloc(3), peer: previous });
    comm.allReduce({ send: equal, op: "sum" });
  });
  const half = await comm.split({ color: rank % 2 });
  await half.allReduce({ send: whole.subarray(1), op: "prod" });
  await half.close();
  const graph = await comm.capture(() => {
    comm.allReduce({ send: whole, op: "sum" });
    comm.broadcast(rank === 0 ? { send: block, root: 0 } : { recv: block, root: 0 });
  });
  await graph.replay();
  await graph.replay();
  comm.work(250, "between");
  await comm.barrier();
}

async function traced(size: number, phantom: boolean): Promise<string> {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, phantom, seed: 3 }), size });
  try {
    await world.run(everyCall);
    return trace.toText();
  } finally {
    await world.close();
  }
}

describe("phantom data", () => {
  test.each([2, 5, 8, 12])(
    "takes the time and sends the messages of data on %i ranks",
    async (size) => {
      const text = await traced(size, true);
      expect(text.length).toBeGreaterThan(1000);
      expect(text).toBe(await traced(size, false));
    },
  );

  test("lets hundreds of ranks reduce a gibibyte each in next to no memory", async () => {
    const ranks = isAll ? 1024 : 256;
    const before = process.memoryUsage().arrayBuffers;
    const link = { latencyNs: 1000, gigabytesPerSecond: 50 };
    const world = await createWorld({ backend: sim({ phantom: true, link }), size: ranks });
    const ends = await world.run(async (comm) => {
      const gradients = comm.alloc("float32", gibibyte / 4);
      await comm.allReduce({ send: gradients, op: "sum" });
      return comm.stats().virtualNs;
    });
    const { timePs } = predict({
      collective: "allReduce",
      algorithm: catalogue.allReduce.ring,
      ranks,
      count: gibibyte / 4,
      bytesPerElement: 4,
      link: linkOf(link),
    });
    expect(ends).toEqual(new Array(ranks).fill(timePs / 1000));
    // The data of all ranks are nowhere: what is kept is the program's steps.
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(gibibyte / 4);
    await world.close();
  });

  test("reports wrong calls like real data", async () => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 4 });
    const calls = world.run(async (comm) => {
      const send = comm.alloc("float32", comm.rank === 2 ? 7 : 8);
      await comm.allReduce({ send, op: "sum" });
    });
    await expect(calls).rejects.toMatchObject({
      cause: { code: "ERR_COMM_MISMATCH", ranks: [2], field: "count" },
    });
    await world.close();
  });

  test("is reported by the capabilities", async () => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 1 });
    const [capabilities] = await world.run(async (comm) => comm.capabilities);
    expect(capabilities).toEqual({
      hostArrays: false,
      virtualTime: true,
      deterministic: true,
      symmetricMemory: true,
      ownStreams: true,
      phantom: true,
    });
    await world.close();
  });

  type Buffer = DeviceBuffer<"float32">;
  const looks: readonly (readonly [string, (buffer: Buffer) => unknown])[] = [
    ["toHost", (buffer) => buffer.toHost()],
    ["copyTo", (buffer) => buffer.copyTo(new Float32Array(4))],
    ["copyFrom", (buffer) => buffer.copyFrom(new Float32Array(4))],
  ];
  test.each(looks)("refuses %s, and states the alternative", async (name, look) => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 2 });
    const found = world.run(async (comm) => {
      const buffer = comm.alloc("float32", 4).fill(1);
      if (comm.rank === 1) await look(buffer);
    });
    await expect(found).rejects.toMatchObject({
      cause: {
        code: "ERR_COMM_UNSUPPORTED",
        rank: 1,
        field: "phantom",
        message: expect.stringMatching(
          new RegExp(`^${name}: the buffer has a size and no contents.*\\nhint: leave it out`),
        ),
      },
    });
    await world.close();
  });

  test("refuses a size of memory before it is allocated", async () => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 1 });
    const found = world.run((comm) => comm.alloc("uint8", 2 ** 50).toHost());
    await expect(found).rejects.toMatchObject({ cause: { code: "ERR_COMM_UNSUPPORTED" } });
    await world.close();
  });

  test("refuses TypedArrays, and values that the dtype does not have", async () => {
    const world = await createWorld({ backend: sim({ phantom: true }), size: 2 });
    await world.run(async (comm) => {
      const call = comm.allReduce({ send: new Float32Array(4), op: "sum" });
      await expect(call).rejects.toMatchObject({
        code: "ERR_COMM_ARG",
        field: "send",
        message: expect.stringMatching(/comm\.alloc\("float32", 4\); phantom data/),
      });
      expect(() => comm.alloc("int32", 2).fill(0.5)).toThrow(/fill/);
    });
    await world.close();
  });

  test("works with no executor and no strict lending", () => {
    const executor = { name: "own", execute: () => undefined };
    expect(() => sim({ phantom: true, executor })).toThrowError(
      expect.objectContaining({ code: "ERR_COMM_ARG", field: "executor" }),
    );
    expect(() => sim({ phantom: true, strict: true })).toThrowError(
      expect.objectContaining({ code: "ERR_COMM_ARG", field: "strict" }),
    );
    expect(() => sim({ phantom: false, executor, strict: true })).not.toThrow();
  });
});
