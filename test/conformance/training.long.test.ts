/** A training run has the same bits on every backend and executor that follows the same plan. */
import type { Backend } from "twinccl";
import { memoryFiles } from "twinccl/parallel";
import { cpu, sim, wasm } from "twinccl/sim";
import { expect, test } from "vitest";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { SmallNetwork } from "../support/small-network.ts";
import { type Job, runJob } from "../support/training-run.ts";

/** The fakes fold in the order of ranks, and so does this plan. */
const twin = (): Backend => sim({ algorithms: { allReduce: "linear" } });

const network = new SmallNetwork([5, 7, 3], "float32");
const job: Job = {
  network,
  data: network.samples(40, 2),
  batch: 18,
  microBatches: [2, 1, 3, 1],
  noise: true,
};
const wires = ["full", "bfloat16", { topK: 0.3 }] as const;

test.each(wires)("on fakes of CUDA and NCCL as on the simulation: %o", async (wire) => {
  const gpus = fakeGpus();
  const wired = { ...job, options: { wire, bucketBytes: 100 } };
  const expected = await runJob(twin(), 4, wired, { until: 50 });
  const found = await runJob(gpus.backend(), 4, wired, { until: 50 });
  for (const [rank, end] of found.entries()) {
    expect(end.bits).toBe(expected[rank]!.bits);
    expect(end.losses).toEqual(expected[rank]!.losses);
  }
  // Another order of folding shows, where anything is folded: the equality says something.
  const other = await runJob(sim({ algorithms: { allReduce: "ring" } }), 4, wired, { until: 50 });
  expect(other[0]!.bits === expected[0]!.bits).toBe(typeof wire === "object");
  expect(gpus.machine.complaints).toEqual([]);
  expect(gpus.machine.leaks()).toEqual([]);
});

test.each(wires)("in WebAssembly as in plain typed arrays: %o", async (wire) => {
  const wired = { ...job, options: { wire, bucketBytes: 100 } };
  const expected = await runJob(sim({ executor: cpu() }), 4, wired, { until: 50 });
  const found = await runJob(sim({ executor: wasm() }), 4, wired, { until: 50 });
  expect(found).toEqual(expected);
});

test("a run continues on the other backend where it was stopped on one", async () => {
  const gpus = fakeGpus();
  const files = memoryFiles();
  const expected = await runJob(twin(), 3, job, { until: 12 });
  await runJob(gpus.backend(), 3, job, { until: 5, files });
  const found = await runJob(twin(), 3, job, { until: 12, files });
  expect(found.map(({ bits }) => bits)).toEqual(expected.map(({ bits }) => bits));
});
