/** A run that is stopped after any step goes on where it was, on as many ranks or on others. */
import { memoryFiles } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { SmallNetwork } from "../../support/small-network.ts";
import { runJob } from "../../support/training-run.ts";

const STEPS = 8;

/** Gradients add up exactly, so that the number of ranks leaves no trace; epochs end in the middle of the run. */
const exact = {
  network: new SmallNetwork([4, 5, 2], "float32", 2 ** -10),
  data: new SmallNetwork([4, 5, 2]).samples(22, 1),
  batch: 6,
  options: { maxGradientNorm: 0.5 },
};

describe("a run of 4 ranks, stopped after any step", () => {
  test.each([1, 2, 3, 4, 8])("ends in the same bits when it is resumed on %i", async (size) => {
    const [whole] = await runJob(sim(), 4, exact, { until: STEPS });
    for (let stop = 1; stop < STEPS; stop++) {
      const files = memoryFiles();
      const [first] = await runJob(sim(), 4, exact, { until: stop, files });
      for (const end of await runJob(sim(), size, exact, { until: STEPS, files })) {
        expect(end.bits).toBe(whole!.bits);
        expect([...first!.losses, ...end.losses]).toHaveLength(STEPS);
        expect(end.norms).toEqual(whole!.norms.slice(stop));
      }
    }
  });
});

test("a run that changes its number of ranks after every step ends in the same bits", async () => {
  const [whole] = await runJob(sim(), 1, exact, { until: STEPS });
  const files = memoryFiles();
  let bits = "";
  for (let step = 1; step <= STEPS; step++) {
    const [end] = await runJob(sim(), [3, 1, 8, 2][step % 4]!, exact, { until: step, files });
    bits = end!.bits;
  }
  expect(bits).toBe(whole!.bits);
});
