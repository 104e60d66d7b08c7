/** Divided models leave the same bits on the device as in plain typed arrays. */
import { cpu, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { dividedRuns, runDivided } from "../support/divided-runs.ts";
import { describeWebgpu, sharedExecutor } from "../support/webgpu.ts";

describeWebgpu("on WebGPU", () => {
  // Eight ranks make the same calls, at many times the time in software.
  test.each(dividedRuns.filter(({ size }) => size <= 6))("$name", async (run) => {
    const executor = await sharedExecutor();
    const expected = await runDivided(sim({ executor: cpu() }), run);
    expect(await runDivided(sim({ executor }), run)).toEqual(expected);
  });
});
