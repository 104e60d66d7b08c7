/**
 * Memory of the wasm executor behind closed worlds. Arenas of more than 32 MiB were dropped with their last world, and the
 * runtime, which does not see their size, never collected them: each world with large buffers added its own.
 */
import { createWorld, type DeviceBuffer } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test, vi } from "vitest";
import { memoryOf } from "../../src/api/buffer.ts";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";

const stopped = vi.hoisted(() => ({ workers: 0 }));

vi.mock("../../src/backends/sim/executors/wasm/spawn.ts", async (original) => {
  const { spawn, ...others } =
    await original<typeof import("../../src/backends/sim/executors/wasm/spawn.ts")>();
  return {
    ...others,
    spawn: (...given: Parameters<typeof spawn>) => {
      const worker = spawn(...given);
      const stop = (): void => {
        stopped.workers++;
        worker?.stop();
      };
      return worker && { stop };
    },
  };
});

const ranks = 4;
/** Elements of a rank's buffer, so that the ranks' together have more bytes than an idle executor keeps. */
const large = 2 ** 21 + 1;
const patience = { timeout: 20_000, interval: 20 };

/** A world with a call over so many elements; gives its arena, weakly. */
async function oneWorld(
  executor: WasmExecutor,
  length: number,
  kept: DeviceBuffer[] = [],
): Promise<WeakRef<object>> {
  const world = await createWorld({ backend: sim({ executor }), size: ranks });
  const arena = new WeakRef(executor.runner.arena);
  await world.run(async (comm) => {
    if (comm.rank === 0) kept.push(comm.alloc("float32", 1).fill(7));
    using send = comm.alloc("float32", length).fill(1);
    await comm.allReduce({ send, op: "sum" });
  });
  await world.close();
  return arena;
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

test("worlds with large buffers, one after another, have one arena", async () => {
  const executor = new WasmExecutor({ threads: 1 });
  const arena = await oneWorld(executor, large);
  for (let i = 0; i < 4; i++) {
    const next = await oneWorld(executor, large);
    expect(next.deref()).toBe(arena.deref());
  }
});

test("an arena without a world is released with its threads when the event loop turns", async () => {
  const executor = new WasmExecutor({ threads: 2 });
  stopped.workers = 0;
  const arena = await oneWorld(executor, large);
  await vi.waitUntil(() => stopped.workers === 1, patience);
  expect(arena.deref()).toBeUndefined();
  await oneWorld(executor, 10);
});

test("a disposed buffer that the program still holds keeps no arena", async () => {
  const executor = new WasmExecutor({ threads: 2 });
  stopped.workers = 0;
  const kept: DeviceBuffer[] = [];
  await oneWorld(executor, large, kept);
  kept[0]?.dispose();
  await vi.waitUntil(() => stopped.workers === 1, patience);
});

test("an arena with a live buffer stays, and serves the next world", async () => {
  const executor = new WasmExecutor({ threads: 1 });
  const kept: DeviceBuffer[] = [];
  const arena = await oneWorld(executor, large, kept);
  for (let i = 0; i < 20; i++) await turn();
  const next = await oneWorld(executor, 10);
  expect(next.deref()).toBe(arena.deref());
  const read = new Float32Array(1);
  await memoryOf(kept[0] as DeviceBuffer).read(0, new Uint8Array(read.buffer));
  expect([...read]).toEqual([7]);
});

test("arenas of unreferenced executors do not accumulate while the event loop never turns", async () => {
  const arenas: WeakRef<object>[] = [];
  for (let i = 0; i < 24; i++) {
    arenas.push(await oneWorld(new WasmExecutor({ threads: 1 }), 2 ** 16));
  }
  expect(arenas.filter((arena) => arena.deref() !== undefined).length).toBeLessThan(12);
});
