/**
 * Defects of three earlier systems with training, shown right: each test is one case that one of them failed.
 *
 * Numbers are those of the list of cases that these tests go through; `collectives.test.ts` has the others.
 */
import {
  CollectiveMismatchError,
  createWorld,
  InvalidArgumentError,
  type WorldError,
} from "twinccl";
import { DataParallel, memoryFiles, ParameterSet } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { descend, naiveRun, SmallNetwork } from "../support/small-network.ts";
import { cut, parts, runJob } from "../support/training-run.ts";

test("case 2: the same parameters in another order on every rank are matched; others are refused", async () => {
  // Flattened in the order of a hash map, equal lengths hid that ranks averaged different parameters.
  const names = ["embed", "query", "key", "value", "head"];
  const world = await createWorld({ backend: sim(), size: 4 });
  try {
    const gradients = await world.run(async (comm) => {
      const order = names.map((_, at) => names[(at * 3 + comm.rank) % names.length]!);
      const set = new ParameterSet(order.map((name) => ({ name, shape: [2, 2] })));
      const trainer = await DataParallel.create(comm, set);
      await trainer.step([1], (_, ready) => {
        for (const name of order) {
          ready(name, new Float32Array(4).fill(10 ** names.indexOf(name) * (comm.rank + 1)));
        }
        return { loss: 0, samples: 1 };
      });
      return Object.fromEntries([...set].map(({ name, gradient }) => [name, [...gradient]]));
    });
    for (const found of gradients) {
      for (const [at, name] of names.entries())
        expect(found[name]).toEqual(new Array(4).fill(2.5 * 10 ** at));
    }
    const error = await world
      .run(async (comm) => {
        const swapped = comm.rank === 1 ? [[4], [2, 2]] : [[2, 2], [4]];
        const [a = [], b = []] = swapped;
        await DataParallel.create(
          comm,
          new ParameterSet([
            { name: "a", shape: a },
            { name: "b", shape: b },
          ]),
        );
      })
      .catch((thrown: unknown) => thrown as WorldError);
    expect((error as WorldError).failures).toHaveLength(4);
    for (const each of (error as WorldError).failures) {
      expect(each.error).toBeInstanceOf(CollectiveMismatchError);
      expect(each.error).toMatchObject({ field: "a", ranks: [1] });
    }
  } finally {
    await world.close();
  }
});

test("case 5: a gradient of the wrong length is refused by name, not truncated", async () => {
  // The shorter of both lengths was taken, and the rest of the parameter never trained.
  for (const length of [5, 7]) {
    const world = await createWorld({ backend: sim(), size: 2 });
    const error = await world
      .run(async (comm) => {
        const set = new ParameterSet([{ name: "w", shape: [2, 3] }]);
        const trainer = await DataParallel.create(comm, set);
        await trainer.step([1], (_, ready) => {
          ready("w", new Float32Array(comm.rank === 1 ? length : 6));
          return { loss: 0, samples: 1 };
        });
      })
      .catch((thrown: unknown) => thrown as WorldError);
    await world.close();
    const { failures } = error as WorldError;
    const culprit = failures.find(({ rank }) => rank === 1)?.error;
    expect(culprit).toBeInstanceOf(InvalidArgumentError);
    expect((culprit as Error).message).toMatch(
      `ready: w: found a gradient of ${length} elements, needs exactly 6`,
    );
    expect(failures.find(({ rank }) => rank === 0)?.error).toMatchObject({
      code: "ERR_COMM_REMOTE",
    });
  }
});

test("case 11: accumulated, clipped training on many ranks equals the one-rank run", async () => {
  // The last micro-batch alone was used, weights were clipped one by one, and norms were averaged.
  const network = new SmallNetwork([6, 9, 4]);
  const batches = Array.from({ length: 30 }, (_, at) => network.samples(20, at % 7));
  const [rate, momentum, clip] = [0.125, 0.5, 0.3];
  const expected = naiveRun(network, 5, batches, { rate, momentum, clip });
  expect(expected.norms.filter((norm) => norm > clip).length).toBeGreaterThan(5);
  for (const size of [2, 3, 4, 8]) {
    const world = await createWorld({ backend: sim(), size });
    const results = await world.run(async (comm) => {
      const set = new ParameterSet(network.declarations(5));
      const values = new Map([...set].map(({ name, value }) => [name, value]));
      const speeds = new Map([...set].map(({ name, value }) => [name, value.slice()]));
      for (const speed of speeds.values()) speed.fill(0);
      const trainer = await DataParallel.create(comm, set, {
        maxGradientNorm: clip,
        bucketBytes: 200,
      });
      const norms: number[] = [];
      for (const batch of batches) {
        const mine = batch.filter((_, at) => at % size === comm.rank);
        const stats = await trainer.step(cut(mine, 1 + comm.rank), (samples, ready) => ({
          loss: network.backward(values, samples, ready),
          samples: samples.length,
        }));
        norms.push(stats.gradientNorm);
        for (const { name, value, gradient } of set)
          descend(value, speeds.get(name)!, gradient, rate, momentum);
      }
      return { norms, values: [...values].map(([name, value]) => [name, [...value]] as const) };
    });
    await world.close();
    for (const { norms, values } of results) {
      for (const [at, norm] of norms.entries()) {
        expect(Math.abs(norm / expected.norms[at]! - 1)).toBeLessThan(1e-10);
      }
      for (const [name, value] of values) {
        const wanted = expected.values.get(name)!;
        const largest = Math.max(...wanted.map(Math.abs));
        for (const [at, each] of value.entries()) {
          expect(Math.abs(each - wanted[at]!) / largest).toBeLessThan(1e-10);
        }
      }
    }
  }
});

test("case 12: a run that is stopped after any step and resumed equals the one that never stopped", async () => {
  // Workers resumed at other steps than the first rank, without optimizer state, on another permutation.
  const steps = 9;
  const job = {
    network: new SmallNetwork([4, 5, 2], "float32"),
    data: new SmallNetwork([4, 5, 2]).samples(22, 1),
    batch: 6,
    noise: true,
    microBatches: [2, 1, 3],
    options: { wire: { topK: 0.5 }, bucketBytes: 64 },
  };
  const whole = await runJob(sim(), 3, job, { until: steps });
  for (let stop = 1; stop < steps; stop++) {
    const files = memoryFiles();
    const first = await runJob(sim({ seed: stop }), 3, job, { until: stop, files });
    const rest = await runJob(sim({ seed: 50 + stop }), 3, job, { until: steps, files });
    for (const [rank, end] of rest.entries()) {
      expect(end.bits).toBe(whole[rank]!.bits);
      expect([...first[rank]!.losses, ...end.losses]).toEqual(whole[rank]!.losses);
    }
  }
  // Without the state of any one part it would not be so: the test can fail.
  for (const without of parts) {
    const files = memoryFiles();
    await runJob(sim(), 3, job, { until: 4, files, without });
    const rest = await runJob(sim(), 3, job, { until: steps, files, without });
    expect(rest[0]!.bits, without).not.toBe(whole[0]!.bits);
  }
});
