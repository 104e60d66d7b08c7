/** Learning rates over time, against PyTorch's recorded ones and at their ends. */
import { constant, cosine, type Schedule, warmUp } from "twinccl/parallel";
import { describe, expect, test } from "vitest";
import { torchRecord } from "../../support/torch-records.ts";

const rates = (schedule: Schedule, steps: number): number[] =>
  Array.from({ length: steps }, (_, step) => schedule(step));

interface Recorded {
  readonly lr: number;
  readonly start: number;
  readonly minimum: number;
  readonly steps: number;
  readonly warmUpSteps: number;
  readonly cosineSteps: number;
  readonly rates: readonly number[];
}

/** PyTorch's schedulers multiply their way from step to step, so a few roundings gather. */
describe("as PyTorch", () => {
  const schedules: Readonly<Record<string, (record: Recorded) => Schedule>> = {
    constant: ({ lr }) => constant(lr),
    warmUp: ({ lr, start, steps }) => warmUp({ start, steps, after: lr }),
    cosine: ({ lr, minimum, steps }) => cosine({ peak: lr, minimum, steps }),
    warmUpThenCosine: ({ lr, start, minimum, warmUpSteps, cosineSteps }) =>
      warmUp({
        start,
        steps: warmUpSteps,
        after: cosine({ peak: lr, minimum, steps: cosineSteps }),
      }),
  };
  test.each(Object.keys(schedules))("%s", (name) => {
    const record = torchRecord<Readonly<Record<string, Recorded>>>("schedules")[name]!;
    const found = rates(schedules[name]!(record), record.rates.length);
    record.rates.forEach((expected, step) => {
      expect(Math.abs(found[step]! - expected), `step ${step}`).toBeLessThanOrEqual(1e-12);
    });
  });
});

test("warm-up rises in a straight line, then the next schedule begins", () => {
  const schedule = warmUp({
    steps: 4,
    start: 0.5,
    after: cosine({ peak: 1, minimum: 0.5, steps: 2 }),
  });
  expect(rates(schedule, 8)).toEqual([0.5, 0.625, 0.75, 0.875, 1, 0.75, 0.5, 0.5]);
  expect(rates(warmUp({ steps: 2, after: 3 }), 4)).toEqual([0, 1.5, 3, 3]);
  expect(rates(warmUp({ steps: 0, after: 3 }), 2)).toEqual([3, 3]);
});

test("cosine stays at its minimum", () => {
  const schedule = cosine({ peak: 2, steps: 4 });
  expect(schedule(0)).toBe(2);
  expect(schedule(2)).toBeCloseTo(1, 15);
  expect(rates(schedule, 9).slice(4)).toEqual([0, 0, 0, 0, 0]);
  expect(cosine({ peak: 2, minimum: 1, steps: 0 })(0)).toBe(1);
});

test("an invalid rate, share or number of steps is refused by name", () => {
  expect(() => constant(-1)).toThrow(
    "constant: learningRate: found -1, needs a number of at least 0",
  );
  expect(() => cosine({ peak: Number.NaN, steps: 1 })).toThrow(/peak/);
  expect(() => cosine({ peak: 1, minimum: 2, steps: 1 })).toThrow(/minimum: found 2/);
  expect(() => cosine({ peak: 1, steps: 1.5 })).toThrow(/steps: found 1.5/);
  expect(() => warmUp({ steps: -1, after: 1 })).toThrow(/steps: found -1/);
  expect(() => warmUp({ steps: 1, start: 2, after: 1 })).toThrow(/start: found 2/);
});
