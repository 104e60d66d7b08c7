/** NCCL's own estimates of calls without running them, and the settings of a world before the query. */
import { createWorld, type Question } from "twinccl";
import { nccl } from "twinccl/nccl";
import { expect } from "vitest";
import { gpuSizes, testOn } from "./machine.ts";

const found = (await gpuSizes()).length;

testOn(2, found)(
  "NCCL's own estimate grows with the size of a call, and nothing runs",
  async () => {
    const world = await createWorld({ backend: nccl(), size: found });
    try {
      for (const collective of ["allReduce", "allGather", "reduceScatter", "broadcast"] as const) {
        const reduces = collective === "allReduce" || collective === "reduceScatter";
        const times: number[] = [];
        for (const count of [1 << 10, 1 << 20, 1 << 26]) {
          const question = { collective, dtype: "float32", count } as const;
          times.push(
            await world.estimate(reduces ? { ...question, op: "sum" } : (question as Question)),
          );
        }
        const [small, middle, large] = times as [number, number, number];
        expect(small, collective).toBeGreaterThan(0);
        expect(middle, collective).toBeGreaterThan(small);
        expect(large, collective).toBeGreaterThan(middle);
      }
      const sums = await world.run(async (comm) => {
        const one = comm.alloc("int32", 1).fill(1);
        await comm.allReduce({ send: one, op: "sum" });
        return (await one.toHost())[0];
      });
      expect(new Set(sums)).toEqual(new Set([found]));
      expect(process.env["NCCL_NVLS_ENABLE"]).toBe("0");
    } finally {
      await world.close();
    }
  },
);
