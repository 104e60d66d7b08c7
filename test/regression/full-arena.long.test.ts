/**
 * Calls and worlds of the wasm executor where memory or addresses run out. Buffers that filled the arena left calls no room
 * for their lists and blocks, and the calls failed with a plain Error; an arena without addresses was reported as 64 bytes
 * too many.
 */
import { type Communicator, createWorld, type World } from "twinccl";
import { cpu, type Executor, HostMemory, type SimOptions, sim, wasm } from "twinccl/sim";
import { afterEach, describe, expect, test, vi } from "vitest";
import { memoryOf } from "../../src/api/buffer.ts";
import { WasmMemory } from "../../src/backends/sim/executors/wasm/arena.ts";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";

const size = 8;
const length = 20_011;

/** Allocates small buffers until they lie outside of the arena. */
function fillArena(comm: Communicator): void {
  for (const bytes of [2 ** 18, 2 ** 12, 1]) {
    while (memoryOf(comm.alloc("uint8", bytes)) instanceof WasmMemory);
  }
}

/** Results of calls that need lists, scratch memory, scalars, blocks and masks, on the last rank. */
async function results(executor: Executor, options: SimOptions): Promise<Uint8Array[]> {
  const world = await createWorld({ backend: sim({ ...options, executor }), size });
  const found = await world.run(async (comm) => {
    if (executor instanceof WasmExecutor) fillArena(comm);
    const values = Float32Array.from({ length }, (_, at) => Math.sin(at * (comm.rank + 1)));
    const seen: Uint8Array[] = [];
    for (const op of ["sum", { preMul: 1 / 3 }, "avg"] as const) {
      for (const inPlace of [true, false]) {
        const send = comm.alloc("float32", length).copyFrom(values);
        const recv = inPlace ? send : comm.alloc("float32", length);
        await comm.allReduce({ send, recv, op });
        seen.push(new Uint8Array((await recv.toHost()).buffer));
      }
    }
    return seen;
  });
  await world.close();
  return found[size - 1] as Uint8Array[];
}

describe("an arena full of buffers serves calls as cpu() does", () => {
  const plans: SimOptions[] = [
    { algorithms: { allReduce: "ring" } },
    { algorithms: { allReduce: "linear" } },
    { like: "nccl-2.28", plan: { protocol: "LL128" } },
  ];
  test.each(plans)("%o", async (plan) => {
    const needed = await results(cpu(), plan);
    const found = await results(new WasmExecutor({ threads: 2, maxBytes: 2 ** 20 }), plan);
    for (const [at, bytes] of needed.entries()) {
      expect(Buffer.compare(found[at] as Uint8Array, bytes), `call ${at}`).toBe(0);
    }
  });
});

test("a call that needs more than is reserved for calls fails with a typed error", async () => {
  const executor = new WasmExecutor({ threads: 1, maxBytes: 2 ** 16 });
  const world = await createWorld({ backend: sim({ executor }), size: 2 });
  // As of a fold over more ranks than fit.
  const reserved = vi.spyOn(executor.runner.arena, "takeForCall").mockReturnValue(undefined);
  const call = (comm: Communicator): PromiseLike<unknown> =>
    comm.allReduce({ send: new Float32Array(length), op: "sum" });
  await world.run(async (comm) => {
    await expect(call(comm)).rejects.toMatchObject({
      code: "ERR_COMM_UNSUPPORTED",
      message: expect.stringContaining("leave too few for this call"),
      hint: expect.stringContaining("dispose buffers"),
    });
  });
  reserved.mockRestore();
  await world.run(call);
  await world.close();
});

describe("without addresses for its memory", () => {
  const runtime = globalThis as unknown as { WebAssembly: { Memory: unknown } };
  const original = runtime.WebAssembly.Memory;

  /** Refuses so many memories, as V8 does. */
  function refuse(times: number): void {
    let left = times;
    runtime.WebAssembly.Memory = class {
      constructor(limits: object) {
        if (left-- > 0) throw new RangeError("WebAssembly.Memory(): could not allocate memory");
        const Memory = original as new (limits: object) => object;
        // biome-ignore lint/correctness/noConstructorReturn: the object that the runtime makes is what is needed
        return new Memory(limits);
      }
    };
  }

  afterEach(() => {
    runtime.WebAssembly.Memory = original;
  });

  const open = (executor?: Executor): Promise<World> =>
    createWorld({ backend: sim(executor && { executor }), size: 2 });

  test("a world on wasm() is refused when it is created, and says what ran out", async () => {
    refuse(Number.POSITIVE_INFINITY);
    await expect(open(wasm())).rejects.toMatchObject({
      code: "ERR_COMM_BACKEND",
      message: expect.stringMatching(/no addresses are left.*10 GiB/),
      hint: expect.stringContaining("let worlds share one wasm()"),
    });
  });

  test("memories that no program uses are released first", async () => {
    refuse(1);
    const world = await open(wasm());
    await world.run((comm) => {
      expect(memoryOf(comm.alloc("int32", 3))).toBeInstanceOf(WasmMemory);
    });
    await world.close();
  });

  test("a world that names no executor takes cpu()", async () => {
    refuse(Number.POSITIVE_INFINITY);
    const world = await open();
    const sums = await world.run(async (comm) => {
      const send = comm.alloc("int32", 3).fill(comm.rank + 1);
      expect(memoryOf(send)).toBeInstanceOf(HostMemory);
      await comm.allReduce({ send, op: "sum" });
      return (await send.toHost())[2];
    });
    expect(sums).toEqual([3, 3]);
    await world.close();
  });
});

test("a length with too many bytes to count is refused with the largest that is allowed", async () => {
  const world = await createWorld({ backend: sim(), size: 1 });
  await world.run(async (comm) => {
    expect(() => comm.alloc("float32", 2 ** 52)).toThrow(
      "alloc: found length 4503599627370496, needs at most 2251799813685247",
    );
  });
  await world.close();
});
