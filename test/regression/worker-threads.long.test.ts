/**
 * Worker threads of the wasm executor. V8 may leave a thread that starts while the shared memory grows with the old size of
 * it: copies beyond trapped in every slice, the call failed with a plain Error, and a part of its output was written.
 */
import { Worker } from "node:worker_threads";
import { BackendUnavailableError, createWorld, type World } from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, expect, test, vi } from "vitest";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";

const trap = "memory access out of bounds";
const threads = vi.hoisted(() => ({ prelude: "" }));

vi.mock("../../src/backends/sim/executors/wasm/binary.js", async (original) => {
  const binary = await original<{ readonly workerSource: string }>();
  return {
    ...binary,
    get workerSource() {
      return threads.prelude + binary.workerSource;
    },
  };
});

afterEach(() => {
  threads.prelude = "";
});

/** Words of the control block; the last one counts how often the worker grew the memory by nothing. */
const word = { round: 0, claim: 1, done: 2, slices: 6, pages: 9, grown: 15 } as const;
const slices = 4;

/** A worker with an idle instance, over a memory that has one page in its view until it is refreshed. */
async function workerBehind(refreshes: boolean): Promise<{ control: Int32Array; worker: Worker }> {
  const { workerSource } = await import("../../src/backends/sim/executors/wasm/binary.js");
  const shared = new SharedArrayBuffer(65_536);
  const prelude = `
    const { workerData } = require("node:worker_threads");
    const words = new Int32Array(workerData.shared);
    let pages = 1;
    WebAssembly.Instance = class { exports = { runSlice() {} } };
    workerData.memory = {
      get buffer() { return pages === 1 ? workerData.shared : { byteLength: pages * 65536 }; },
      grow() { if (${refreshes}) pages = 2; Atomics.add(words, ${word.grown}, 1); },
    };
  `;
  const data = { shared, controlAt: 0, thread: 1 };
  const worker = new Worker(prelude + workerSource, { eval: true, workerData: data });
  return { control: new Int32Array(shared), worker };
}

/** Offers a list that reaches so many pages. */
function offer(control: Int32Array, pages: number): void {
  control[word.pages] = pages;
  control[word.slices] = slices;
  Atomics.store(control, word.claim, ((Atomics.load(control, word.round) + 1) << 16) | slices);
  Atomics.add(control, word.round, 1);
  Atomics.notify(control, word.round);
}

test("a worker with an old size of the memory looks it up again before it takes work", async () => {
  const { control, worker } = await workerBehind(true);
  offer(control, 2);
  await vi.waitUntil(() => Atomics.load(control, word.done) === slices, 20_000);
  expect(Atomics.load(control, word.grown)).toBe(1);
  await worker.terminate();
});

test("a worker that still has an old size takes no slice of a list that reaches further", async () => {
  const { control, worker } = await workerBehind(false);
  offer(control, 2);
  await vi.waitUntil(() => Atomics.load(control, word.grown) > 0, 20_000);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(Atomics.load(control, word.claim) & 0xffff).toBe(slices);
  offer(control, 1);
  await vi.waitUntil(() => Atomics.load(control, word.done) === slices, 20_000);
  await worker.terminate();
});

const worldOf = (executor: WasmExecutor): Promise<World> =>
  createWorld({ backend: sim({ executor }), size: 2 });

/** The last element of a sum of ones, on every rank. */
async function sums(world: World): Promise<number[]> {
  return world.run(async (comm) => {
    using send = comm.alloc("float64", 2 ** 18).fill(1);
    using recv = comm.alloc("float64", 2 ** 18);
    await comm.allReduce({ send, recv, op: "sum" });
    return (await recv.toHost()).at(-1) as number;
  });
}

/** Makes calls until one fails: its error on every rank. */
async function firstFailure(world: World): Promise<unknown[]> {
  return world.run(async (comm) => {
    const send = comm.alloc("float64", 2 ** 18).fill(1);
    const until = performance.now() + 20_000;
    while (performance.now() < until) {
      try {
        await comm.allReduce({ send, recv: send, op: "max" });
      } catch (error) {
        return error;
      }
      // Threads start meanwhile.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return undefined;
  });
}

test("a worker that traps fails the call with a typed error on every rank, and the next calls are right", async () => {
  threads.prelude = `
    WebAssembly.Instance = class {
      exports = { runSlice() { throw new WebAssembly.RuntimeError("${trap}"); } };
    };
  `;
  const executor = new WasmExecutor({ threads: 2, crossover: 0 });
  const world = await worldOf(executor);
  const before = executor.runner;
  for (const error of await firstFailure(world)) {
    expect(error).toBeInstanceOf(BackendUnavailableError);
    expect(error).toMatchObject({
      code: "ERR_COMM_BACKEND",
      message: expect.stringContaining(`a worker thread: RuntimeError: ${trap}`),
      hint: expect.stringContaining("hold no result"),
    });
  }
  expect(await sums(world)).toEqual([2, 2]);
  expect([executor.runner, executor.runner.threads]).toEqual([before, 1]);
  await world.close();
  threads.prelude = "";
  const next = await worldOf(executor);
  expect(executor.runner).not.toBe(before);
  expect(executor.runner.threads).toBe(2);
  expect(await sums(next)).toEqual([2, 2]);
  await next.close();
});

test.each([1, 2])(
  "a trap of the calling thread, of %i, is a typed error, and leaves nothing taken or written",
  async (count) => {
    const executor = new WasmExecutor({ threads: count, crossover: 0 });
    const world = await worldOf(executor);
    await sums(world);
    const { arena } = executor.runner;
    const [kernels, live] = [arena.kernels, arena.live];
    const runSlice = (): void => {
      throw new RangeError(trap);
    };
    Object.assign(arena, { kernels: { runSlice } });
    await world.run(async (comm) => {
      const recv = new Float32Array(8).fill(7);
      await expect(
        comm.allReduce({ send: new Float32Array(8), recv, op: "sum" }),
      ).rejects.toMatchObject({ code: "ERR_COMM_BACKEND" });
      expect(recv.every((value) => value === 7)).toBe(true);
    });
    expect(arena.live).toBe(live);
    Object.assign(arena, { kernels });
    expect(await sums(world)).toEqual([2, 2]);
    await world.close();
  },
);
