/** NCCL's own estimates, of calls that are made in a simulated group: here each NCCL call of it counts for a microsecond. */
import { createWorld, type Question } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { cleanGpus, inWorld } from "./gpus.ts";

describe("an estimate", () => {
  test.each<[Question, number]>([
    [{ collective: "allReduce", dtype: "float32", op: "sum", count: 1 << 20 }, 3000],
    [{ collective: "allReduce", dtype: "float32", op: { preMul: 2 }, count: 8 }, 3000],
    [{ collective: "broadcast", dtype: "int8", count: 8, root: 1 }, 3000],
    [{ collective: "reduceScatter", dtype: "uint64", op: "max", count: 1 }, 3000],
  ])(
    "of %j sums NCCL's over its groups, runs nothing and leaves no resource",
    async (question, ns) => {
      const gpus = cleanGpus();
      await inWorld(gpus, 3, async (world) => {
        expect(await world.estimate(question)).toBe(ns);
        expect(gpus.machine.count("eventRecord")).toBe(0);
        const sums = await world.run(async (comm) => {
          const one = comm.alloc("int32", 1).fill(1);
          await comm.allReduce({ send: one, op: "sum" });
          return (await one.toHost())[0];
        });
        expect(sums).toEqual([3, 3, 3]);
      });
    },
  );

  test.each(["sum", "avg", { preMul: 2 }] as const)(
    "of one rank is 0 for %j: NCCL would launch the call at once, on memory that is not there",
    async (op) => {
      await inWorld(cleanGpus(), 1, async (world) => {
        const question = { collective: "allReduce", dtype: "float32", op, count: 8 } as const;
        expect(await world.estimate(question)).toBe(0);
      });
    },
  );

  test("of what NCCL cannot estimate is refused by name", async () => {
    await inWorld(cleanGpus(), 2, async (world) => {
      const estimated = world.estimate({ collective: "barrier" });
      await expect(estimated).rejects.toMatchObject({
        code: "ERR_COMM_UNSUPPORTED",
        message: expect.stringMatching(/not barrier\nhint: explain predicts every call/),
      });
    });
  });

  test("of an invalid call is refused as the call would be", async () => {
    await inWorld(cleanGpus(), 2, async (world) => {
      const estimated = world.estimate({
        collective: "broadcast",
        dtype: "int8",
        count: 8,
        root: 2,
      });
      await expect(estimated).rejects.toMatchObject({
        ...{ code: "ERR_COMM_ARG", field: "root" },
        message: expect.stringMatching(/^estimate: root/),
      });
    });
  });

  test("is refused once its world is closed, as in the simulation", async () => {
    const question = { collective: "allReduce", dtype: "int8", op: "sum", count: 8 } as const;
    const closed = { code: "ERR_COMM_CLOSED", message: expect.stringContaining("estimate") };
    const simulated = await createWorld({ backend: sim(), size: 2 });
    await simulated.close();
    await expect(simulated.estimate(question)).rejects.toMatchObject(closed);
    await inWorld(cleanGpus(), 2, async (world) => {
      await world.close();
      await expect(world.estimate(question)).rejects.toMatchObject(closed);
    });
  });
});
