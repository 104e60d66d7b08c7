/** Memory that several ranks share: harmless to read, wrong to write, and told apart from in place. */

import { createWorld, type WorldError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

describe("a host array that several ranks pass", () => {
  test("as send only is fine", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const shared: Int32Array = Int32Array.of(1, 2, 3);
    const results = await world.run(async (comm) => {
      const recv: Int32Array = new Int32Array(3);
      await comm.allReduce({ send: shared, recv, op: "sum" });
      return Array.from(recv);
    });
    expect(results).toEqual(new Array(4).fill([4, 8, 12]));
    expect(Array.from(shared)).toEqual([1, 2, 3]);
    await world.close();
  });

  test("as recv is refused on all of them, and nothing is written", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const shared = new Int32Array(3);
    const run = world.run(async (comm) => {
      const send = comm.alloc("int32", 3).fill(comm.rank);
      const recv: Int32Array = comm.rank === 1 ? new Int32Array(3) : shared;
      await comm.allToAll({ send, recv });
    });
    const error = await run.then(
      () => "ran",
      (failed: WorldError) => failed.code,
    );
    expect(error).toBe("ERR_COMM_WORLD");
    expect(Array.from(shared)).toEqual([0, 0, 0]);
    await world.close();
  });

  test("in place is refused: every rank would fold what another has written", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const shared = Int32Array.of(1, 2, 3, 4);
    const run = world.run((comm) => comm.allReduce({ send: shared, op: "sum" }));
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    expect(Array.from(shared)).toEqual([1, 2, 3, 4]);
    await world.close();
  });

  test("as one rank's send and another's recv is refused", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const shared = Int32Array.of(1, 2, 3, 4);
    const run = world.run(async (comm) => {
      const other = Int32Array.of(10, 20, 30, 40);
      const first = comm.rank === 0;
      const send: Int32Array = first ? shared : other;
      const recv: Int32Array = first ? new Int32Array(4) : shared;
      await comm.allReduce({ send, recv, op: "sum" });
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    await world.close();
  });

  test("different ranges of one allocation are each rank's own", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const memory = new Float32Array(4 * 5);
    memory.forEach((_, i) => {
      memory[i] = i;
    });
    await world.run((comm) => {
      const own = memory.subarray(5 * comm.rank, 5 * comm.rank + 5);
      return comm.allReduce({ send: own, op: "max" });
    });
    const last = [15, 16, 17, 18, 19];
    expect(Array.from(memory)).toEqual([...last, ...last, ...last, ...last]);
    await world.close();
  });
});
