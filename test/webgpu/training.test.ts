/** A training run has the same bits on the device as on cpu(), whatever gradients travel as, and may move between them. */
import { memoryFiles } from "twinccl/parallel";
import { cpu, sim } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";
import { expect, test } from "vitest";
import { SmallNetwork } from "../support/small-network.ts";
import { type Job, runJob } from "../support/training-run.ts";
import { adapter, describeWebgpu, sharedDevice } from "../support/webgpu.ts";

const device = adapter.ok ? await sharedDevice() : undefined;
const onDevice = () => sim({ executor: webgpu(device && { device }) });
const onHost = () => sim({ executor: cpu() });

const network = new SmallNetwork([5, 7, 3], "float32");
const job: Job = {
  network,
  data: network.samples(40, 2),
  batch: 18,
  microBatches: [2, 1, 3, 1],
  noise: true,
};

describeWebgpu("on WebGPU", () => {
  const wires = ["full", "float16", "bfloat16", { topK: 0.3 }] as const;
  test.each(wires)("20 steps leave the bits of cpu(): %o", async (wire) => {
    const wired = { ...job, options: { wire, bucketBytes: 100 } };
    const expected = await runJob(onHost(), 4, wired, { until: 20 });
    expect(await runJob(onDevice(), 4, wired, { until: 20 })).toEqual(expected);
  });

  test("50 steps in float64 leave the bits of cpu()", async () => {
    const exact = new SmallNetwork([4, 6, 2]);
    const whole: Job = { network: exact, data: exact.samples(24, 1), batch: 24 };
    const expected = await runJob(onHost(), 3, whole, { until: 50 });
    expect(await runJob(onDevice(), 3, whole, { until: 50 })).toEqual(expected);
    // Another order of folding shows: the equality says something.
    const linear = sim({ algorithms: { allReduce: "linear" } });
    expect((await runJob(linear, 3, whole, { until: 50 }))[0]!.bits).not.toBe(expected[0]!.bits);
  });

  test("a run continues on the device where it was stopped on the host", async () => {
    const files = memoryFiles();
    const expected = await runJob(onHost(), 3, job, { until: 8 });
    await runJob(onHost(), 3, job, { until: 5, files });
    const found = await runJob(onDevice(), 3, job, { until: 8, files });
    expect(found.map(({ bits }) => bits)).toEqual(expected.map(({ bits }) => bits));
  });
});
