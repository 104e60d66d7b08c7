/** The guard of the misuse corpus itself: a write is seen, whatever has become of the buffer. */
import { createWorld } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { whenSettled } from "../../../src/api/op.ts";
import { expectPlanted, Guard } from "../../support/planted.ts";

test.each(["while it lives", "after its run", "after its world"] as const)(
  "a write into a guarded buffer is seen %s",
  async (when) => {
    for (const dtype of ["int8", "float16", "float64", "uint64"] as const) {
      const guard = new Guard();
      const world = await createWorld({ backend: sim({ executor: cpu() }), size: 1 });
      await world.run(async (comm) => {
        const bytes = guard.buffer(comm, dtype, 5);
        await comm.barrier();
        guard.assertUnwritten();
        bytes.subarray(4).fill(dtype === "uint64" ? 8n : 8);
        if (when === "while it lives") expect(() => guard.assertUnwritten()).toThrow("written");
      });
      if (when === "after its world") await world.close();
      expect(() => guard.assertUnwritten()).toThrow("bytes were written");
      await world.close();
    }
  },
);

test("a write into a guarded array is seen", () => {
  const guard = new Guard();
  const array = guard.array(Int32Array.of(1, 2, 3).subarray(1));
  guard.assertUnwritten();
  array[1] = 4;
  expect(() => guard.assertUnwritten()).toThrow("bytes were written");
});

test("a planted program that fails as expected, and writes a guarded buffer, fails the test", async () => {
  const planted = (writes: boolean): Promise<void> =>
    expectPlanted({
      wrong: "root differs",
      size: 2,
      program: (comm, guard) => {
        const recv = guard.buffer(comm, "float32", 3);
        const op = comm.broadcast({ recv, root: comm.rank });
        if (writes && comm.rank === 1) whenSettled(op, () => recv.fill(1));
        return op;
      },
      expected: () => ({ name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH" }),
    });
  await planted(false);
  await expect(planted(true)).rejects.toThrow("bytes were written");
});
