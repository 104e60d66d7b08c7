/** The wasm executor beside its bits: where buffers live, growing, sharing, threads that end. */
import { spawnSync } from "node:child_process";
import { createContext, runInContext } from "node:vm";
import { createWorld, type DeviceBuffer, type World } from "twinccl";
import { HostMemory, sim, wasm } from "twinccl/sim";
import { describe, expect, test, vi } from "vitest";
import { memoryOf } from "../../../../src/api/buffer.ts";
import { WasmMemory } from "../../../../src/backends/sim/executors/wasm/arena.ts";
import { WasmExecutor } from "../../../../src/backends/sim/executors/wasm/wasm.ts";

const worldOf = (executor: WasmExecutor, size: number): Promise<World> =>
  createWorld({ backend: sim({ executor }), size });

/** The sum of ones over all ranks, in buffers of `count` elements, and where rank 0's buffer lives. */
async function sumOfOnes(world: World, count: number): Promise<{ sum: number; inArena: boolean }> {
  const [first] = await world.run(async (comm) => {
    using send = comm.alloc("float64", count).fill(1);
    using recv = comm.alloc("float64", count);
    await comm.allReduce({ send, recv, op: "sum" });
    const found = await recv.toHost();
    const memory = memoryOf(recv);
    return { sum: found[count - 1] as number, inArena: memory instanceof WasmMemory };
  });
  return first as { sum: number; inArena: boolean };
}

describe.each([true, false])("memory, shared: %s", (shared) => {
  test("grows under buffers that are in use", async () => {
    const executor = new WasmExecutor({ threads: 1, shared });
    const world = await worldOf(executor, 2);
    const kept = await world.run(async (comm) => comm.alloc("int32", 1000).fill(comm.rank + 1));
    const before = executor.runner.arena.size;
    expect(await sumOfOnes(world, 2 ** 20)).toEqual({ sum: 2, inArena: true });
    expect(executor.runner.arena.size).toBeGreaterThan(before);
    const [one, two] = await Promise.all(kept.map((buffer) => buffer.toHost()));
    expect([one?.[999], two?.[0]]).toEqual([1, 2]);
    await world.close();
  });

  test("is filled from the first element of a range to the last", async () => {
    const world = await worldOf(new WasmExecutor({ threads: 1, shared }), 1);
    await world.run(async (comm) => {
      for (const dtype of ["int8", "uint8", "float16", "int32"] as const) {
        for (const count of [0, 1, 63, 64, 65, 128, 1000]) {
          using buffer = comm.alloc(dtype, count + 8);
          buffer.subarray(3, 3 + count).fill(1);
          const one = dtype === "float16" ? 0x3c00 : 1;
          const expected = Array.from({ length: count + 8 }, (_, at) =>
            at >= 3 && at < 3 + count ? one : 0,
          );
          expect(Array.from(await buffer.toHost(), Number), dtype).toEqual(expected);
        }
      }
    });
    await world.close();
  });

  test("is used again when buffers are disposed, and is zeroed", async () => {
    const executor = new WasmExecutor({ threads: 1, shared });
    const world = await worldOf(executor, 2);
    await sumOfOnes(world, 5000);
    const { arena } = executor.runner;
    const [live, size] = [arena.live, arena.size];
    for (let i = 0; i < 50; i++) await sumOfOnes(world, 5000);
    expect([arena.live, arena.size]).toEqual([live, size]);
    const [fresh] = await world.run(async (comm) => comm.alloc("float64", 20_000).toHost());
    expect(fresh?.every((value) => Object.is(value, 0))).toBe(true);
    const ends = await world.run(async (comm) => {
      comm.alloc("uint8", 4099).fill(255).dispose();
      return [...(await comm.alloc("uint8", 4099).toHost())].slice(-8);
    });
    expect(ends).toEqual(Array(2).fill(Array(8).fill(0)));
    await world.close();
  });

  test("that is full leaves buffers in host memory, with the same results", async () => {
    const executor = new WasmExecutor({ threads: 1, shared, maxBytes: 2 ** 21 });
    const world = await worldOf(executor, 3);
    expect(await sumOfOnes(world, 2 ** 16)).toEqual({ sum: 3, inArena: false });
    expect(await sumOfOnes(world, 100)).toEqual({ sum: 3, inArena: true });
    await world.close();
  });
});

test("several worlds on one executor do not disturb each other, and leave their memory to the next one", async () => {
  const executor = new WasmExecutor({ threads: 1 });
  const worlds = [await worldOf(executor, 2), await worldOf(executor, 3)] as const;
  const sums = await Promise.all(worlds.map((world) => sumOfOnes(world, 2 ** 22)));
  expect(sums.map(({ sum }) => sum)).toEqual([2, 3]);
  const { arena } = executor.runner;
  await worlds[0].close();
  expect(executor.runner.arena === arena).toBe(true);
  await worlds[1].close();
  const again = await worldOf(executor, 2);
  expect(executor.runner.arena === arena).toBe(true);
  expect((await sumOfOnes(again, 10)).sum).toBe(2);
  await again.close();
});

test("memory outlives its world: reads that began before its end continue", async () => {
  const world = await worldOf(new WasmExecutor({ threads: 1 }), 1);
  const [buffer] = await world.run(async (comm) => comm.alloc("int32", 4).fill(7));
  await world.close();
  const read = new Int32Array(4);
  await memoryOf(buffer as DeviceBuffer).read(0, new Uint8Array(read.buffer));
  expect([...read]).toEqual([7, 7, 7, 7]);
});

test("sim() takes the executor by default", async () => {
  const world = await createWorld({ backend: sim(), size: 1 });
  const [memory] = await world.run(async (comm) => memoryOf(comm.alloc("int8", 1)));
  expect(memory).toBeInstanceOf(WasmMemory);
  expect(memory).not.toBeInstanceOf(HostMemory);
  await world.close();
});

test("where the runtime refuses to compile, sim() takes cpu(), and wasm() by name is unavailable", async () => {
  const page = createContext({}, { codeGeneration: { wasm: false } });
  vi.stubGlobal("WebAssembly", runInContext("WebAssembly", page));
  vi.resetModules();
  const [library, simulation] = await Promise.all([import("twinccl"), import("twinccl/sim")]);
  vi.unstubAllGlobals();
  // The modules keep the refusal: later files of this process load them again.
  vi.resetModules();
  const open = (executor?: ReturnType<typeof wasm>) =>
    library.createWorld({ backend: simulation.sim({ executor }), size: 2 });
  expect((await sumOfOnes(await open(), 10)).sum).toBe(2);
  await expect(open(simulation.wasm())).rejects.toMatchObject({
    code: "ERR_COMM_BACKEND",
    message: expect.stringMatching(/^sim: executor wasm: .*not compile/),
    hint: expect.stringContaining("cpu()"),
  });
});

test("worker threads do a part of large calls", async () => {
  const executor = new WasmExecutor({ threads: 3 });
  const world = await worldOf(executor, 2);
  const began = performance.now();
  while (executor.runner.workerSlices === 0 && performance.now() - began < 15_000) {
    expect((await sumOfOnes(world, 2 ** 19)).sum).toBe(2);
    // Workers start while the event loop turns.
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(executor.runner.workerSlices).toBeGreaterThan(0);
  await world.close();
});

test("where no worker may start, large calls run on the calling thread", async () => {
  const { getBuiltinModule } = process;
  const refused = vi.fn(function refuse() {
    throw new Error("Access to this API has been restricted");
  });
  const builtins = vi
    .spyOn(process, "getBuiltinModule")
    .mockImplementation((name: string): object | undefined =>
      name === "node:worker_threads" ? { Worker: refused } : getBuiltinModule(name),
    );
  const world = await worldOf(new WasmExecutor({ threads: 3, crossover: 0 }), 2);
  const { sum } = await sumOfOnes(world, 1_000);
  builtins.mockRestore();
  expect(sum).toBe(2);
  expect(refused).toHaveBeenCalledTimes(2);
  await world.close();
});

test("a small call stays on the calling thread", async () => {
  const executor = new WasmExecutor({ threads: 3 });
  const world = await worldOf(executor, 2);
  for (let i = 0; i < 20; i++) await sumOfOnes(world, 1000);
  expect(executor.runner.workerSlices).toBe(0);
  await world.close();
});

test("a program ends by itself while workers sleep, whether or not it closed its world", () => {
  const program = `
    import { createWorld } from "twinccl";
    import { sim, wasm } from "twinccl/sim";
    const world = await createWorld({ backend: sim({ executor: wasm({ threads: 3 }) }), size: 2 });
    await world.run(async (comm) => {
      const send = comm.alloc("float32", 2 ** 21).fill(1);
      for (let i = 0; i < 5; i++) await comm.allReduce({ send, op: "max" });
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    console.log("done");
  `;
  const options = { encoding: "utf8", timeout: 60_000 } as const;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", program], options);
  expect(child.stderr).toBe("");
  expect(child.stdout).toBe("done\n");
  expect(child.status).toBe(0);
});

test.each([0, 1.5, 257, Number.NaN])("threads: %s is refused", (threads) => {
  expect(() => wasm({ threads })).toThrow(/wasm: threads: found .*, needs an integer in 1..256/);
});
