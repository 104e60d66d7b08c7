/** Buffers that are never disposed: their memory is given back while the program runs, without a turn of its own. */
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { WasmExecutor } from "../../../../src/backends/sim/executors/wasm/wasm.ts";
import { isAll } from "../../../support/seed.ts";

const ranks = 8;
const length = 2 ** 15;
const mebibyte = 2 ** 20;

test("arenas without references are collected in a loop that only awaits calls", async () => {
  const executor = new WasmExecutor({ threads: 1, pressureBytes: 4 * mebibyte });
  const world = await createWorld({ backend: sim({ executor }), size: ranks });
  const [rounds, most] = isAll ? [400, 200] : [200, 150];
  await world.run(async (comm) => {
    const kept = comm.alloc("float32", length).fill(comm.rank);
    for (let round = 0; round < rounds; round++) {
      const buffer = comm.alloc("float32", length).fill(comm.rank + round);
      await comm.allReduce({ send: buffer, op: "max" });
      if (round % 40 === 0) expect((await buffer.toHost())[length - 1]).toBe(ranks - 1 + round);
    }
    expect((await kept.toHost()).every((value) => value === comm.rank)).toBe(true);
  });
  // A round takes one mebibyte.
  expect(executor.runner.arena.size).toBeLessThan(most * mebibyte);
  await world.close();
});

test("arenas in use are not collected, in any number", async () => {
  const executor = new WasmExecutor({ threads: 1, pressureBytes: mebibyte });
  const world = await createWorld({ backend: sim({ executor }), size: 2 });
  await world.run(async (comm) => {
    const buffers = Array.from({ length: 64 }, (_, i) => comm.alloc("float32", length).fill(i));
    for (const buffer of buffers) await comm.allReduce({ send: buffer, op: "sum" });
    for (const [i, buffer] of buffers.entries()) {
      expect((await buffer.toHost()).every((value) => value === 2 * i)).toBe(true);
    }
  });
  await world.close();
});

test("arenas are named when there is no memory at all", async () => {
  const world = await createWorld({
    backend: sim({ executor: new WasmExecutor({ threads: 1 }) }),
    size: 1,
  });
  await world.run(async (comm) => {
    expect(() => comm.alloc("uint8", 2 ** 50)).toThrowError(
      expect.objectContaining({
        code: "ERR_COMM_ARG",
        field: "length",
        message: expect.stringMatching(/\nhint: dispose buffers after their last use: \d+ bytes/),
      }),
    );
  });
  await world.close();
});
