/** Sharded training: the numbers of one rank with everything, in a part of the memory. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  adamW,
  type CheckpointFiles,
  Checkpoints,
  lion,
  memoryFiles,
  ParameterSet,
  type Ready,
  ShardedParallel,
  type ShardedParallelOptions,
  type ShardingStage,
  sgd,
  type UpdateRule,
  type Visit,
  warmUp,
} from "twinccl/parallel";
import { cpu, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { naiveRun, type Sample, SmallNetwork } from "../../support/small-network.ts";
import { layerOf, visitingBackward } from "../../support/visiting-network.ts";

const STEPS = 50;
const [rate, momentum] = [0.0625, 0.5];
const rule = sgd({ learningRate: rate, momentum });
const stages: readonly ShardingStage[] = [1, 2, 3];

interface Run {
  readonly losses: number[];
  readonly norms: number[];
  readonly values: Record<string, number[]>;
}

interface Span {
  readonly files?: CheckpointFiles;
  /** Steps to the end of the run. */
  readonly until?: number;
}

type Cut = (batch: readonly Sample[], rank: number, size: number) => Sample[][];

const even: Cut = (batch, rank, size) => [batch.filter((_, at) => at % size === rank)];
/** The last rank gets nothing, the others differ in samples and micro-batches. */
const uneven: Cut = (batch, rank, size) => {
  if (rank === size - 1) return [];
  const mine = batch.filter((_, at) => Math.floor(Math.sqrt(at)) % (size - 1) === rank);
  const cuts = Math.ceil(mine.length / 2);
  return Array.from({ length: cuts }, (_, at) => mine.slice(2 * at, 2 * at + 2));
};

const batchesOf = (network: SmallNetwork): Sample[][] =>
  Array.from({ length: STEPS }, (_, at) => network.samples(24, at % 10));

async function onRanks<T>(
  backend: Backend,
  size: number,
  program: (comm: Communicator) => Promise<T>,
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

/** One rank's training, with or without visits. */
async function train(
  comm: Communicator,
  network: SmallNetwork,
  cut: Cut,
  options: Omit<ShardedParallelOptions, "rule" | "layerOf">,
  { files, until = STEPS }: Span = {},
  way: "visits" | "no visits" | "synchronous" = "visits",
): Promise<Run> {
  // Only the root's values count; each rank declares in an order of its own.
  const declared = network.declarations(comm.rank === 0 ? 5 : 900 + comm.rank);
  const model = new ParameterSet(comm.rank % 2 === 0 ? declared : declared.toReversed());
  const trainer = await ShardedParallel.create(comm, model, { ...options, rule, layerOf });
  const checkpoints = files === undefined ? undefined : new Checkpoints(comm, files);
  const parts = { shared: {}, perRank: { trainer } };
  const begun = (await checkpoints?.load(parts))?.step ?? 0;
  const visiting = visitingBackward(network, model);
  const live = { get: (name: string) => model.get(name).value } as unknown as Parameters<
    SmallNetwork["backward"]
  >[0];
  const ways = {
    visits: visiting,
    "no visits": (samples: readonly Sample[], ready: Ready) =>
      visiting(samples, ready, async () => {}),
    synchronous: (samples: readonly Sample[], ready: Ready) => ({
      loss: network.backward(live, samples, ready),
      samples: samples.length,
    }),
  };
  const run: Run = { losses: [], norms: [], values: {} };
  for (const batch of batchesOf(network).slice(begun, until)) {
    const stats = await trainer.step(cut(batch, comm.rank, comm.size), ways[way]);
    run.losses.push(stats.loss);
    run.norms.push(stats.gradientNorm);
  }
  await checkpoints?.save(until, parts);
  await trainer.gatherValues();
  for (const { name, value } of model) run.values[name] = [...value];
  trainer[Symbol.dispose]();
  return run;
}

function expectClose(found: readonly number[], expected: ArrayLike<number>): void {
  const largest = Math.max(...Array.from(expected, Math.abs));
  expect(found.length).toBe(expected.length);
  for (const [at, each] of found.entries()) {
    expect(Math.abs(each - expected[at]!)).toBeLessThanOrEqual(1e-10 * largest);
  }
}

describe.each([2, 3, 4, 8])("50 steps on %i ranks", (size) => {
  describe.each(stages)("at stage %i", (stage) => {
    test.each([
      ["even batches", even, Number.POSITIVE_INFINITY],
      ["uneven batches, an idle rank, micro-batches, clipped", uneven, 0.25],
    ])("equal the one-rank run, bit-equal in every run and executor: %s", async (_, cut, clip) => {
      const network = new SmallNetwork([5, 7, 3]);
      const expected = naiveRun(network, 5, batchesOf(network), { rate, momentum, clip });
      const program = (comm: Communicator) =>
        train(comm, network, cut, { stage, maxGradientNorm: clip });
      const found = await onRanks(sim({ seed: 1, executor: cpu() }), size, program);
      expectClose(found[0]!.losses, expected.losses);
      expectClose(found[0]!.norms, expected.norms);
      for (const [name, values] of expected.values) expectClose(found[0]!.values[name]!, values);
      for (const each of found) expect(each).toEqual(found[0]);
      expect(await onRanks(sim({ seed: 2, executor: wasm() }), size, program)).toEqual(found);
      if (clip < 1) expect(expected.norms.filter((n) => n > clip).length).toBeGreaterThan(5);
    });
  });

  test("have the same bits at all stages, with and without visits and prefetch", async () => {
    const network = new SmallNetwork([5, 7, 3], "float32");
    const plans = [
      { stage: 1, way: "visits" },
      { stage: 1, way: "no visits" },
      { stage: 2, way: "visits" },
      { stage: 2, way: "no visits" },
      { stage: 3, way: "visits" },
      { stage: 3, way: "visits", prefetch: false },
    ] as const;
    const [first, ...others] = await Promise.all(
      plans.map(({ way, ...options }) =>
        onRanks(sim(), size, (comm) => train(comm, network, even, options, { until: 10 }, way)),
      ),
    );
    for (const each of others) expect(each).toEqual(first);
  });
});

// Each sample's gradient is rounded, which is done by the network's own backward alone; it visits nothing.
describe.each([2, 3, 4, 8])("50 steps on %i ranks", (size) => {
  test.each([1, 2] as const)(
    "are bit-equal to the one-rank run where gradients add up exactly: stage %i",
    async (stage) => {
      const network = new SmallNetwork([4, 6, 2], "float32", 2 ** -10);
      const expected = naiveRun(network, 5, batchesOf(network), { rate, momentum });
      const [found] = await onRanks(sim(), size, (comm) =>
        train(comm, network, uneven, { stage }, {}, "synchronous"),
      );
      for (const [name, values] of expected.values) {
        expect(found!.values[name]).toEqual([...values]);
      }
    },
  );
});

describe("checkpoints", () => {
  test.each(stages)("continue bit by bit from where they stopped: stage %i", async (stage) => {
    const network = new SmallNetwork([5, 7, 3]);
    const files = memoryFiles();
    const options = { stage, maxGradientNorm: 0.3 };
    const whole = await onRanks(sim(), 3, (comm) => train(comm, network, uneven, options));
    await onRanks(sim(), 3, (comm) => train(comm, network, uneven, options, { files, until: 20 }));
    const rest = await onRanks(sim(), 3, (comm) =>
      train(comm, network, uneven, options, { files }),
    );
    expect(rest[0]!.values).toEqual(whole[0]!.values);
    expect(rest[0]!.losses).toEqual(whole[0]!.losses.slice(20));
  });

  test.each([
    [4, 3, 2, 3],
    [2, 5, 3, 1],
    [1, 4, 1, 3],
    [3, 1, 3, 2],
  ] as const)(
    "written by %i ranks are read by %i, at another stage too",
    async (writers, readers, from, to) => {
      const network = new SmallNetwork([5, 7, 3]);
      const files = memoryFiles();
      const saved = await onRanks(sim(), writers, (comm) =>
        train(comm, network, even, { stage: from }, { files, until: 20 }),
      );
      const read = await onRanks(sim(), readers, (comm) =>
        train(comm, network, even, { stage: to }, { files, until: 20 }),
      );
      for (const each of read) expect(each.values).toEqual(saved[0]!.values);
      // Momentum came along as well: what follows is what would have.
      const expected = naiveRun(network, 5, batchesOf(network), { rate, momentum });
      const [rest] = await onRanks(sim(), readers, (comm) =>
        train(comm, network, even, { stage: to }, { files }),
      );
      for (const [name, values] of expected.values) expectClose(rest!.values[name]!, values);
    },
  );
});

describe.each([
  // Each layer: 6 · 6 + 6 = 42 elements, padded to 44; 7 · 7 + 7 = 56 need no padding. Bytes of float64.
  { width: 6, padded: 44 * 8, padding: 2 * 8 },
  { width: 7, padded: 56 * 8, padding: 0 },
])("memory of layers as wide as $width", ({ width, padded, padding }) => {
  const [size, layers, share] = [4, 5, padded / 4];
  const network = new SmallNetwork(new Array<number>(layers + 1).fill(width));

  async function measured(stage: ShardingStage, prefetch: boolean) {
    const found = await onRanks(sim(), size, async (comm) => {
      const model = new ParameterSet(network.declarations(1));
      const adam = adamW({ learningRate: 0.01 });
      const options = { stage, rule: adam, layerOf, prefetch };
      const trainer = await ShardedParallel.create(comm, model, options);
      const backward = visitingBackward(network, model);
      const samples = network.samples(3, comm.rank);
      for (let step = 0; step < 2; step++) await trainer.step([samples, samples], backward);
      return trainer.memory;
    });
    return found;
  }

  // As docs/model-parallel.md has it: what is held, what comes on top while a layer needs it, and the most of all together.
  const [whole, cut] = [layers * padded, layers * share];
  const [held, twice] = [
    { values: whole, gradients: whole, gathered: 0, summed: 0, exchange: 2, total: 2 },
    { values: whole, gradients: cut, gathered: 0, summed: padded, exchange: 2, total: 3 },
  ];
  const third = { values: cut, gradients: cut, gathered: padded, summed: padded };
  test.each([
    { stage: 1, prefetch: true, ...held },
    { stage: 1, prefetch: false, ...held },
    { stage: 2, prefetch: true, ...twice },
    { stage: 2, prefetch: false, ...twice },
    { stage: 3, prefetch: true, ...third, exchange: 4, total: 5 },
    { stage: 3, prefetch: false, ...third, exchange: 3, total: 4 },
  ] as const)("is the formula's on every rank: stage $stage, prefetch $prefetch", async (plan) => {
    const { stage, prefetch, values, gradients, gathered, summed, exchange, total } = plan;
    for (const [rank, memory] of (await measured(stage, prefetch)).entries()) {
      expect(memory.values).toEqual({ nowBytes: values, peakBytes: values + gathered });
      expect(memory.gradients).toEqual({ nowBytes: gradients, peakBytes: gradients + summed });
      // Two slots; the last rank's share ends in the padding, which has none.
      const state = 2 * layers * (rank === size - 1 ? share - padding : share);
      expect(memory.optimizer).toEqual({ nowBytes: state, peakBytes: state });
      expect(memory.exchange).toEqual({ nowBytes: 0, peakBytes: exchange * padded });
      const nowBytes = values + gradients + state;
      expect(memory.total).toEqual({ nowBytes, peakBytes: nowBytes + total * padded });
    }
  });
});

describe("a step", () => {
  type Backward = (samples: Sample[], ready: Ready, visit: Visit) => Promise<unknown>;
  const network = new SmallNetwork([2, 3, 1]);
  const samples = network.samples(2, 1);

  /** The error of a step on two ranks, of which the first does something of its own; and of one that follows. */
  async function errors(
    options: Partial<ShardedParallelOptions>,
    odd: (plain: Backward, trainer: ShardedParallel) => Backward,
  ) {
    const world = await createWorld({ backend: sim(), size: 2 });
    try {
      const found: string[][] = [[], []];
      await world
        .run(async (comm) => {
          const model = new ParameterSet(network.declarations(1));
          const trainer = await ShardedParallel.create(comm, model, {
            stage: 3,
            rule,
            layerOf,
            ...options,
          });
          const plain = visitingBackward(network, model) as Backward;
          const backward = comm.rank === 0 ? odd(plain, trainer) : plain;
          const step = (way: Backward) =>
            trainer.step([samples], way as ReturnType<typeof visitingBackward>).then(
              () => "done",
              (error: Error & { code: string }) => `${error.code}: ${error.message}`,
            );
          found[comm.rank]!.push(await step(backward));
          found[comm.rank]!.push(await step(plain));
        })
        .catch(() => undefined);
      return found;
    } finally {
      await world.close();
    }
  }

  test("refuses layers out of order, by name", async () => {
    const [mine] = await errors({}, () => async (_, __, visit) => {
      await visit("layer1");
    });
    expect(mine![0]).toContain('found a visit of "layer1", needs "layer0"');
    expect(mine![0]).toContain("layers are visited in the order layer0, layer1, and then back");
    expect(mine![1]).toContain("ERR_COMM_CLOSED");
  });

  test("refuses to end before every layer was visited", async () => {
    const [mine] = await errors({}, () => async (_, __, visit) => {
      await visit("layer0");
      return { loss: 0, samples: 1 };
    });
    expect(mine![0]).toContain("backward ended after 1 visits, needs 4");
  });

  test("refuses visits that are not awaited", async () => {
    const [two] = await errors({}, () => async (_, __, visit) => {
      visit("layer0");
      await visit("layer1");
    });
    expect(two![0]).toContain('found a visit of "layer1" before it has arrived');
    const [unseen] = await errors({}, () => async (_, __, visit) => {
      for (const name of ["layer0", "layer1", "layer1", "layer0"]) visit(name);
      return { loss: 0, samples: 1 };
    });
    expect(unseen![0]).toMatch(/the end of backward before it has arrived|ended after 1 visits/);
  });

  test("refuses a gradient out of order, a second one and one of another length", async () => {
    const early = await errors({}, (plain) => async (batch, ready, visit) => {
      await visit("layer0");
      ready("bias0", new Float64Array(3));
      return plain(batch, ready, visit);
    });
    expect(early[0]![0]).toContain("while layers are visited forward");
    const twice = await errors({ stage: 2 }, (plain) => (batch, ready, visit) => {
      return plain(
        batch,
        (name, gradient) => {
          ready(name, gradient);
          ready(name, gradient);
        },
        visit,
      );
    });
    expect(twice[0]![0]).toContain("found a second gradient in the same micro-batch, needs one");
    const short = await errors(
      {},
      (plain) => (batch, ready, visit) =>
        plain(batch, (name) => ready(name, new Float64Array(2)), visit),
    );
    expect(short[0]![0]).toContain("found a gradient of 2 elements, needs exactly");
  });

  test.each(stages)(
    "refuses unused or non-finite gradients on all ranks, and continues: stage %i",
    async (stage) => {
      const unused = await errors(
        { stage },
        (plain) => (batch, ready, visit) =>
          plain(
            batch,
            (name, gradient) => (name === "bias1" ? undefined : ready(name, gradient)),
            visit,
          ),
      );
      for (const [refused, next] of unused as [string, string][]) {
        expect(refused).toMatch(/ERR_COMM_UNUSED.*1 parameter got no gradient[\s\S]*bias1/);
        expect(refused).toContain("ShardedParallel.create(…");
        expect(next).toBe("done");
      }
      const infinite = await errors(
        { stage },
        (plain) => (batch, ready, visit) =>
          plain(
            batch,
            (name, g) => ready(name, name === "weight1" ? g.map(() => 1 / 0) : g),
            visit,
          ),
      );
      for (const [refused, next] of infinite as [string, string][]) {
        expect(refused).toMatch(/ERR_COMM_NONFINITE.*"weight1" is not finite/);
        expect(next).toBe("done");
      }
    },
  );

  test.each(stages)("takes a gradient times its scale: stage %i", async (stage) => {
    const norms = (scale?: number) =>
      onRanks(sim(), 2, async (comm) => {
        const model = new ParameterSet(network.declarations(1));
        const trainer = await ShardedParallel.create(comm, model, { stage, rule, layerOf });
        const backward = visitingBackward(network, model);
        const { gradientNorm } = await trainer.step([samples, samples], (each, ready, visit) =>
          backward(each, (name, gradient) => ready(name, gradient, scale), visit),
        );
        return gradientNorm;
      });
    const [[plain], [twice]] = await Promise.all([norms(), norms(2)]);
    expect(twice).toBe(2 * plain!);
  });

  test("refuses reads of values that are not gathered", async () => {
    await onRanks(sim(), 2, async (comm) => {
      const model = new ParameterSet(network.declarations(1));
      const trainer = await ShardedParallel.create(comm, model, { stage: 3, rule, layerOf });
      expect(() => model.get("weight0").value).toThrow("its values are not gathered on this rank");
      expect(() => model.values("float64")).toThrow("held in shards");
      await trainer.gatherValues();
      expect([...model.get("bias0").value]).toEqual([0.125, 0.125, 0.125]);
      trainer.releaseValues();
      expect(() => model.get("bias0").value).toThrow("not gathered");
      expect(trainer.layers).toEqual(["layer0", "layer1"]);
      expect(trainer.learningRate()).toBe(rate);
    });
  });

  test("is refused by all where ranks differ in layers, stage or rules", async () => {
    const outcome = (options: (rank: number) => Partial<ShardedParallelOptions>) =>
      onRanks(sim(), 3, (comm) =>
        ShardedParallel.create(comm, new ParameterSet(network.declarations(1)), {
          stage: 3,
          rule,
          layerOf,
          ...options(comm.rank),
        }).then(() => "created", String),
      );
    for (const each of await outcome((rank) => ({ stage: rank === 1 ? 2 : 3 }))) {
      expect(each).toMatch(/option "stage": rank 1 differs/);
    }
    for (const each of await outcome((rank) => (rank === 2 ? { layerOf: (name) => name } : {}))) {
      expect(each).toMatch(/parameter "bias0": rank 2 differs/);
    }
    const other = adamW({ learningRate: 1 });
    for (const each of await outcome((rank) => (rank === 1 ? { rule: other } : {}))) {
      expect(each).toMatch(/parameter "bias0": rank 1 differs/);
      expect(each).toContain("in any order, with the same layers and rules");
    }
    const warm = (peak: number) =>
      sgd({ learningRate: warmUp({ steps: 9, after: peak }), momentum });
    const rules: [UpdateRule, UpdateRule, string][] = [
      [rule, sgd({ learningRate: 2 * rate, momentum }), "with rates 0.125, 0.125"],
      [rule, sgd({ learningRate: rate, momentum, weightDecay: 0.5 }), '"weightDecay":0.5'],
      [warm(9), warm(18), "with rates 0, 2"],
      [other, adamW({ learningRate: 1, betas: [0.5, 0.999] }), '"betas":[0.5,0.999]'],
      [lion({ learningRate: 1 }), lion({ learningRate: 1, weightDecay: 1 }), '"weightDecay":1'],
    ];
    for (const [one, another, shown] of rules) {
      for (const each of await outcome((rank) => ({ rule: rank === 1 ? another : one }))) {
        expect(each).toMatch(/parameter "bias0": rank 1 differs/);
        expect(each).toContain(shown);
      }
    }
    const [none] = await outcome(() => ({ rule: (() => undefined) as unknown as typeof rule }));
    expect(none).toContain('rule of "bias0": found undefined, needs an update rule');
    const [wrong] = await outcome(() => ({ stage: 4 as 3 }));
    expect(wrong).toContain("stage: found 4, needs 1, 2 or 3");
  });
});
