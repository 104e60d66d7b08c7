/** A run that is stopped after any step goes on where it was, on as many ranks or on others. */
import { CommError, WorldError } from "twinccl";
import { memoryFiles } from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
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

/** Every kind of state that a run has; on as many ranks as before the bits are the same without exact sums. */
const everything = {
  network: new SmallNetwork([3, 4, 2], "float32"),
  data: new SmallNetwork([3, 4, 2]).samples(10, 1),
  batch: 4,
  noise: true,
  microBatches: [2, 1, 3],
  options: { wire: { topK: 0.5 }, bucketBytes: 32, maxGradientNorm: 0.5 },
};

test.each([
  [0, 0],
  [1, 0],
  [0, 1],
  [2, 1],
])(
  "a run in which rank %i fails at any call after step %i continues from its last checkpoint, to the same bits",
  async (rank, begun) => {
    const whole = await runJob(sim(), 3, everything, { until: 3 });
    const resumedAt = new Set<number>();
    for (let call = 0; ; call++) {
      const files = memoryFiles();
      if (begun > 0) await runJob(sim(), 3, everything, { until: begun, files });
      const faulty = sim({ faults: [failAt(rank, call)] });
      const span = { until: 3, files, everyStep: true };
      const first = await runJob(faulty, 3, everything, span).catch((error: unknown) => error);
      if (!(first instanceof WorldError)) {
        expect((first as typeof whole).map(({ bits }) => bits)).toEqual(
          whole.map(({ bits }) => bits),
        );
        expect(call).toBeGreaterThan(30);
        break;
      }
      expect(first.failures).toHaveLength(3);
      for (const { error } of first.failures) expect(error).toBeInstanceOf(CommError);
      const rest = await runJob(sim(), 3, everything, span);
      for (const [at, end] of rest.entries()) {
        expect(end.bits).toBe(whole[at]!.bits);
        expect(end.losses).toEqual(whole[at]!.losses.slice(3 - end.losses.length));
      }
      resumedAt.add(3 - rest[0]!.losses.length);
    }
    expect([...resumedAt].toSorted()).toEqual([0, 1, 2, 3].slice(begun));
  },
  60_000,
);
