/** Memory that was disposed of: given back when nothing runs, so that CUDA blocks nobody, or when it is needed. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { fakeGpus } from "../../support/fake-gpus/index.ts";
import { cleanGpus, inWorld, turns } from "./gpus.ts";
import { closeAll, closeRest, type Joined, joinAll, told } from "./joined.ts";

const ones = (comm: Communicator) => comm.alloc("float32", 8).fill(1);

/** Two calls of rank 0, of which rank 1 makes the first one; `bytes` are disposed of behind it. */
async function twoInFlight(ranks: readonly Joined[], bytes: number, timeoutMs?: number) {
  const [a, b] = ranks.map(({ comm }) => ({ comm, data: ones(comm) }));
  const old = a!.comm.alloc("uint8", bytes);
  await turns();
  const call = ({ comm, data }: NonNullable<typeof a>, options = {}) =>
    comm.allReduce({ send: data, op: "sum", ...options });
  const one = call(a!);
  old.dispose();
  await turns();
  const two = call(a!, { timeoutMs });
  await turns();
  await call(b!);
  await one;
  await turns();
  return { two, other: () => call(b!) };
}

describe("a buffer that was disposed of between two calls", () => {
  test("stays while the second one waits for another process, whose deadline is heard", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const { two } = await twoInFlight(ranks, 32, 300);
    expect(gpus.machine.count("free")).toBe(0);
    expect(await told(two)).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
    await turns();
    expect(gpus.machine.count("free")).toBe(1);
    await closeRest(ranks);
  });

  test("goes when the second one is done", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const { two, other } = await twoInFlight(ranks, 32);
    await Promise.all([two, other()]);
    await turns();
    expect(gpus.machine.count("free")).toBe(1);
    await closeAll(ranks);
  });

  test("does not stay where the device has less left than that", async () => {
    const gpus = fakeGpus({ memoryBytes: 1 << 20 });
    const ranks = await joinAll(2, undefined, gpus);
    const { two, other } = await twoInFlight(ranks, 600 << 10);
    expect(gpus.machine.count("free")).toBe(1);
    await Promise.all([two, other()]);
    await closeAll(ranks);
  });
});

test.each([false, true])(
  "a buffer goes as the work before it ends, before the next call (symmetric: %s)",
  async (symmetric) => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const data = ones(comm);
        const old = comm.alloc("float32", 8, { symmetric });
        await comm.barrier();
        const one = comm.allReduce({ send: data, op: "sum" });
        old.dispose();
        await one;
        await comm.allReduce({ send: data, op: "sum" });
      });
      expect(gpus.machine.count(symmetric ? "memFree" : "free")).toBe(2);
    });
  },
);

test("an allocation that would fail has what waits given back first", async () => {
  const gpus = cleanGpus({ memoryBytes: 1 << 20 });
  await inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const buffers = [1, 2, 3].map(() => comm.alloc("uint8", 300 << 10));
      for (const buffer of buffers) buffer.dispose();
      const large = comm.alloc("uint8", 900 << 10);
      const refusal = expect.stringMatching(/are more than cuda:0 has free/);
      expect(() => comm.alloc("uint8", 900 << 10)).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", message: refusal }),
      );
      large.dispose();
    });
  });
});

test("what waits when a world closes is given back once", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const data = ones(comm);
      void comm.allReduce({ send: data, op: "sum" });
      ones(comm).dispose();
    });
    void world.close();
  });
});
