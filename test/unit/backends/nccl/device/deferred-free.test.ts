/** Disposed memory: given back when nothing runs, so that CUDA blocks no rank, or when it is needed. */
import type { Communicator } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { DeferredFree } from "../../../../../src/backends/nccl/device/deferred-free.ts";
import { Device } from "../../../../../src/backends/nccl/device/device.ts";
import { Progress } from "../../../../../src/backends/nccl/device/progress.ts";
import { fakeCuda } from "../../../../support/fake-gpus/cuda.ts";
import { Machine } from "../../../../support/fake-gpus/machine.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll } from "../job/joined.ts";

quickTime();

// Modules keep what other files have done on this thread.
vi.hoisted(() => vi.resetModules());

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
  test("stays while the second one waits for another process, and its deadline is noticed", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const { two } = await twoInFlight(ranks, 32, 300);
    expect(gpus.machine.count("free")).toBe(0);
    expect(await errorOf(two)).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
    // The end of the communicator is announced to the other process first.
    await expect.poll(() => gpus.machine.count("free")).toBe(1);
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

  test("stays when the device has less memory left, and serves an alloc of its size", async () => {
    const gpus = cleanGpus({ memoryBytes: 1 << 20 });
    const ranks = await joinAll(2, undefined, gpus);
    const [{ comm }] = ranks as [Joined];
    const { two, other } = await twoInFlight(ranks, 600 << 10);
    expect(gpus.machine.count("free")).toBe(0);
    expect(() => comm.alloc("uint8", 700 << 10)).toThrowError(
      expect.objectContaining({
        code: "ERR_COMM_ARG",
        message: expect.stringContaining("614400 bytes that were disposed wait for calls"),
        hint: expect.stringContaining("await the calls"),
      }),
    );
    const again = comm.alloc("uint8", 500 << 10).fill(7);
    expect(() => comm.alloc("uint8", 600 << 10)).toThrow(/are more than cuda:0 has free/);
    await Promise.all([two, other()]);
    expect((await again.toHost())[0]).toBe(7);
    again.dispose();
    await turns();
    expect(gpus.machine.count("free")).toBe(1);
    comm.alloc("uint8", 700 << 10);
    await closeAll(ranks);
  });
});

test.each([false, true])(
  "a buffer is freed as the work before it ends, before the next call (symmetric: %s)",
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

test("an allocation that would fail frees waiting buffers first", async () => {
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

test.each([
  [false, "is given back", 1],
  [true, "stays", 0],
])(
  "an alloc of more than the device has left, behind work that waits for others: %s, %s",
  async (spansProcesses, _, given) => {
    const machine = new Machine({ memoryBytes: 1 << 10 });
    const cuda = fakeCuda(machine);
    const device = new Device(cuda, 0);
    const progress = new Progress(() => undefined);
    const freeing = new DeferredFree({ device, progress });
    const done = [false, false];
    const put = (which: number) =>
      machine.stream(device.stream).put(() => ({ what: "work", step: () => done[which] === true }));
    put(0);
    const giveBack = vi.fn();
    freeing.add(1 << 11, giveBack);
    await turns();
    put(1);
    progress.whenDone(
      [device],
      { spansProcesses },
      { acceptsMore: false, settled: () => undefined },
    );
    await turns();
    done[0] = true;
    await turns();
    expect(giveBack).toHaveBeenCalledTimes(given);
    expect(freeing.flush()).toBe(false);
    done[1] = true;
    await turns();
    expect(giveBack).toHaveBeenCalledTimes(1);
    expect(machine.count("streamSynchronize")).toBe(1);
  },
);

test("waiting memory is freed once when a world closes", async () => {
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
