/** Training on many ranks comes out where one rank with all samples does, which runs nothing of the library. */
import { createWorld } from "twinccl";
import { DataParallel, type DataParallelOptions, ParameterSet } from "twinccl/parallel";
import { mlp } from "twinccl/parallel/models";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { descend, naiveRun, type Sample, SmallNetwork } from "../../support/small-network.ts";

const STEPS = 50;
const GLOBAL_BATCH = 24;
const rate = 0.0625;
const momentum = 0.5;

interface Run {
  readonly losses: number[];
  readonly norms: number[];
  readonly values: Map<string, Float32Array | Float64Array>;
}

/** The cut of a batch into a rank's samples, and of those into micro-batches. */
type Cut = (batch: readonly Sample[], rank: number, size: number) => Sample[][];

const even: Cut = (batch, rank, size) => [
  batch.slice((batch.length / size) * rank, (batch.length / size) * (rank + 1)),
];
/** The last rank gets nothing, the first most, in micro-batches of two. */
const uneven: Cut = (batch, rank, size) => {
  if (rank === size - 1) return [];
  const mine = batch.filter((_, at) => Math.floor(Math.sqrt(at)) % (size - 1) === rank);
  const cuts = Math.ceil(mine.length / 2);
  return Array.from({ length: cuts }, (_, at) => mine.slice(2 * at, 2 * at + 2));
};

async function train(
  size: number,
  network: SmallNetwork,
  batches: readonly (readonly Sample[])[],
  cut: Cut,
  options: DataParallelOptions = {},
  backend = sim({ seed: size }),
): Promise<Run[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(async (comm) => {
      // Only the root's values count; each rank declares in an order of its own.
      const declared = network.declarations(comm.rank === 0 ? 5 : 900 + comm.rank);
      const set = new ParameterSet(comm.rank % 2 === 0 ? declared : declared.toReversed());
      const values = new Map([...set].map(({ name, value }) => [name, value]));
      const speeds = new Map([...set].map(({ name, value }) => [name, value.slice().fill(0)]));
      const trainer = await DataParallel.create(comm, set, { bucketBytes: 256, ...options });
      const run: Run = { losses: [], norms: [], values };
      for (const batch of batches) {
        const stats = await trainer.step(cut(batch, comm.rank, size), (samples, ready) => ({
          loss: network.backward(values, samples, ready),
          samples: samples.length,
        }));
        run.losses.push(stats.loss);
        run.norms.push(stats.gradientNorm);
        for (const { name, value, gradient } of set) {
          descend(value, speeds.get(name)!, gradient, rate, momentum);
        }
      }
      return run;
    });
  } finally {
    await world.close();
  }
}

const batchesOf = (network: SmallNetwork): Sample[][] =>
  Array.from({ length: STEPS }, (_, at) => network.samples(GLOBAL_BATCH, at % 10));

function relativeGap(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  const largest = Math.max(...Array.from(expected, Math.abs));
  return Math.max(
    ...Array.from(expected, (each, at) => Math.abs(each - found[at]!) / Math.max(largest, 1e-300)),
  );
}

const bits = (run: Run): string =>
  JSON.stringify(
    [...run.values]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, v]) => [name, [...new BigUint64Array(Float64Array.from(v).buffer)].map(String)]),
  );

describe.each([2, 3, 4, 8])("50 steps on %i ranks", (size) => {
  test.each([
    ["even batches", even, Number.POSITIVE_INFINITY],
    ["uneven batches, an idle rank, micro-batches, clipped", uneven, 0.25],
  ])("equal the one-rank run in float64: %s", async (_, cut, clip) => {
    const network = new SmallNetwork([5, 7, 3]);
    const batches = batchesOf(network);
    const expected = naiveRun(network, 5, batches, { rate, momentum, clip });
    const found = await train(size, network, batches, cut, { maxGradientNorm: clip });
    for (const run of found) {
      expect(bits(run)).toBe(bits(found[0]!));
      expect(relativeGap(run.losses, expected.losses)).toBeLessThan(1e-10);
      expect(relativeGap(run.norms, expected.norms)).toBeLessThan(1e-10);
      for (const [name, value] of run.values) {
        expect(relativeGap(value, expected.values.get(name)!), name).toBeLessThan(1e-10);
      }
    }
    // The test would be blind if training did nothing, or clipping never struck.
    expect(expected.losses.at(-1)).toBeLessThan(expected.losses[0]! / 2);
    if (Number.isFinite(clip))
      expect(expected.norms.filter((n) => n > clip).length).toBeGreaterThan(5);
  });

  test.each(["float32", "float64"] as const)(
    "are bit-equal to the one-rank run where gradients add up exactly: %s",
    async (dtype) => {
      // Multiples of 2^-10 below 2^7, 24 of them: every partial sum is exact even in float32.
      const network = new SmallNetwork([4, 6, 2], dtype, 2 ** -10);
      const batches = batchesOf(network);
      const expected = naiveRun(network, 5, batches, { rate, momentum, clip: 0.5 });
      const found = await train(size, network, batches, uneven, { maxGradientNorm: 0.5 });
      for (const run of found) {
        expect(bits(run)).toBe(bits(expected));
        expect(run.norms).toEqual(expected.norms);
      }
    },
  );

  test("are bit-equal from run to run, whatever the seed of the simulation", async () => {
    const network = new SmallNetwork([5, 7, 3], "float32");
    const batches = batchesOf(network).slice(0, 10);
    const first = await train(size, network, batches, uneven, {}, sim({ seed: 1 }));
    const again = await train(size, network, batches, uneven, {}, sim({ seed: 2 }));
    expect(again.map(bits)).toEqual(first.map(bits));
    expect(again[0]!.losses).toEqual(first[0]!.losses);
  });
});

test("classes with different weights weigh the same on any number of ranks", async () => {
  // Ranks' samples have other classes, so that the mean of ranks' means would be another.
  const steps = Array.from({ length: 30 }, (_, step) =>
    Array.from({ length: 13 }, (_, at) => ({ input: [(at % 5) - 2, step % 3], target: at % 3 })),
  );
  const weighted = async (size: number) => {
    const world = await createWorld({ backend: sim(), size });
    const runs = await world.run(async (comm) => {
      const options = {
        sizes: [2, 5, 3],
        loss: "crossEntropy",
        dtype: "float64",
        seed: 3,
      } as const;
      const model = mlp({ ...options, classWeights: [1, 0.25, 3] });
      const trainer = await DataParallel.create(comm, model.parameters);
      const stepValues: number[] = [];
      for (const samples of steps) {
        const mine = samples.filter(({ target }, at) => (target + (at & 1)) % size === comm.rank);
        const input = mine.flatMap((each) => each.input);
        const target = mine.map((each) => each.target);
        const batches = mine.length === 0 ? [] : [{ input, target }];
        const stats = await trainer.step(batches, (each, ready) => model.backward(each, ready));
        stepValues.push(stats.loss, stats.weight);
        const [values, gradients] = [
          model.parameters.values("float64"),
          model.parameters.gradients("float64"),
        ];
        for (let at = 0; at < values.length; at++) values[at]! -= 0.25 * gradients[at]!;
      }
      return [...stepValues, ...model.parameters.values("float64")];
    });
    await world.close();
    return runs;
  };
  const [expected] = await weighted(1);
  // Five, four and four of the classes: 5 + 4 / 4 + 4 · 3.
  expect(expected![1]).toBe(18);
  expect(expected![58]!).toBeLessThan(expected![0]! / 1.2);
  for (const size of [2, 3, 5]) {
    for (const found of await weighted(size)) {
      expect(relativeGap(found, expected!)).toBeLessThan(1e-10);
    }
  }
});
