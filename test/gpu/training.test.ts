/** Training on GPUs leaves the simulation's bits, step by step, and a run may move from one to the other. */

import { nccl } from "twinccl/nccl";
import { memoryFiles } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect } from "vitest";
import { SmallNetwork } from "../support/small-network.ts";
import { type Job, runJob } from "../support/training-run.ts";
import { gpuSizes, testOn } from "./machine.ts";

const sizes = await gpuSizes();
const here = sizes.length;

const network = new SmallNetwork([5, 7, 3], "float32");
const job: Job = {
  network,
  data: network.samples(40, 2),
  batch: 18,
  microBatches: [2, 1, 3, 1],
  noise: true,
};

describe.each([2, 3, 4])("on %i ranks", (size) => {
  testOn(size, here)("50 steps leave the same bits, whatever is sent", async () => {
    for (const wire of ["full", "bfloat16", { topK: 0.3 }] as const) {
      const wired = { ...job, options: { wire, bucketBytes: 100 } };
      const expected = await runJob(sim(), size, wired, { until: 50 });
      const found = await runJob(nccl(), size, wired, { until: 50 });
      expect(found).toEqual(expected);
      if (size < 3 || wire !== "full") continue;
      // Another order of folding shows: the equality says something.
      const other = sim({ algorithms: { allReduce: "linear" } });
      const otherwise = await runJob(other, size, wired, { until: 50 });
      expect(otherwise[0]!.bits).not.toBe(expected[0]!.bits);
    }
  });

  testOn(size, here)("a run goes on on GPUs where the simulation stopped", async () => {
    const files = memoryFiles();
    const expected = await runJob(sim(), size, job, { until: 12 });
    await runJob(sim(), size, job, { until: 5, files });
    const found = await runJob(nccl(), size, job, { until: 12, files });
    expect(found.map(({ bits }) => bits)).toEqual(expected.map(({ bits }) => bits));
  });
});
