/** Strict lending where buffers lie on a device: writes are counted, since there are no bytes to sum at once. */
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { describeWebgpu, sharedExecutor } from "../support/webgpu.ts";

/** Two ranks; the first one may write its buffer after it has made the call. */
async function run(writes: "lent" | "other" | "nothing"): Promise<number[]> {
  const executor = await sharedExecutor();
  const world = await createWorld({ backend: sim({ executor, strict: true }), size: 2 });
  try {
    return await world.run(async (comm) => {
      const buffer = comm.alloc("int32", 8).fill(comm.rank + 1);
      const half = buffer.subarray(0, 4);
      const first = comm.allReduce({ send: half, op: "sum" });
      // The same memory lent again, before the first call has written it.
      const second = comm.allReduce({ send: half, op: "sum" });
      if (comm.rank === 0 && writes !== "nothing") {
        buffer.subarray(writes === "lent" ? 3 : 4, 8).fill(9);
      }
      await first;
      await second;
      return (await buffer.toHost())[0] as number;
    });
  } finally {
    await world.close();
  }
}

describeWebgpu("strict lending on a device", () => {
  test("a write to a lent buffer is reported", async () => {
    await expect(run("lent")).rejects.toThrow(/rank 0/);
  });

  test.each(["other", "nothing"] as const)("writing %s of it is allowed", async (writes) => {
    expect(await run(writes)).toEqual([6, 6]);
  });
});
