/** Sharded state inside pipelines: each stage gathers and frees its layers micro-batch by micro-batch. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  adamW,
  type CheckpointFiles,
  Checkpoints,
  Mesh,
  memoryFiles,
  ParameterSet,
  PipelineParallel,
  type PipelineSchedule,
  Random,
  ShardedParallel,
  type ShardedParallelOptions,
  type ShardingStage,
  sgd,
} from "twinccl/parallel";
import { type MlpBatch, mlpStage, shardedTransformer } from "twinccl/parallel/models";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { isAll } from "../../support/seed.ts";

const stages: readonly ShardingStage[] = [1, 2, 3];
const rule = sgd({ learningRate: 0.1, momentum: 0.9 });

async function onRanks<T>(
  size: number,
  program: (comm: Communicator) => Promise<T>,
  backend: Backend = sim({ seed: size }),
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

function batchOf(sizes: readonly number[], ...key: number[]): MlpBatch {
  const random = new Random(...key);
  const draw = (count: number) => Array.from({ length: count }, () => random.normal());
  return { input: draw(2 * sizes[0]!), target: draw(2 * sizes.at(-1)!) };
}

interface Plan {
  readonly sizes: readonly number[];
  readonly data: number;
  readonly pipeline: number;
  /** By line. */
  readonly microBatches: readonly number[];
  readonly schedule?: PipelineSchedule;
  readonly options: Partial<ShardedParallelOptions> & { readonly stage: ShardingStage };
  readonly visits?: boolean;
  readonly steps?: number;
}

async function trained(comm: Communicator, plan: Plan) {
  const { sizes, data, pipeline, microBatches, schedule = "1f1b", steps = 3 } = plan;
  const mesh = await Mesh.create(comm, { data, pipeline });
  const line = mesh.comm("pipeline");
  const stage = mlpStage(line, { sizes, dtype: "float64", seed: 5 });
  const run = await PipelineParallel.create(line, stage, { dtype: "float64", schedule });
  const trainer = await ShardedParallel.create(mesh.comm("data"), stage.parameters, {
    rule,
    divided: { comm: line, copies: () => 1 },
    ...plan.options,
  });
  const place = mesh.place("data");
  const losses: number[] = [];
  for (let step = 0; step < steps; step++) {
    const own = Array.from({ length: microBatches[place]! }, (_, at) =>
      batchOf(sizes, step, place, at),
    );
    const { loss } = await trainer.step([own], (all, ready, visit) =>
      run.backward(all, ready, plan.visits === false ? undefined : visit),
    );
    losses.push(loss);
  }
  const { memory } = trainer;
  await trainer.gatherValues();
  const values = [...stage.parameters].map(({ name, value }) => [name, [...value]]);
  return { losses, values, memory };
}

const bits = (ranks: Awaited<ReturnType<typeof trained>>[]) =>
  ranks.map(({ losses, values }) => ({ losses, values }));

describe("a stage's values", () => {
  const plan = { sizes: [3, 4, 5, 4, 2], data: 2, pipeline: 2, microBatches: [3, 3] };

  test("have the same bits by either schedule, at stages 2 and 3, with and without prefetch", async () => {
    const [first, ...others] = await Promise.all(
      [
        { schedule: "1f1b", options: { stage: 2 } },
        { schedule: "gpipe", options: { stage: 2 } },
        { schedule: "1f1b", options: { stage: 3 } },
        { schedule: "gpipe", options: { stage: 3 } },
        { schedule: "1f1b", options: { stage: 3, prefetch: false } },
      ].map((each) =>
        onRanks(4, (comm) =>
          trained(comm, { ...plan, ...(each as Omit<Plan, keyof typeof plan>) }),
        ),
      ),
    );
    for (const each of others) expect(bits(each)).toEqual(bits(first!));
  });

  test("cannot be read before a visit, nor after the next one", async () => {
    const seen = await onRanks(4, async (comm) => {
      const mesh = await Mesh.create(comm, { data: 2, pipeline: 2 });
      const line = mesh.comm("pipeline");
      const stage = mlpStage(line, { sizes: plan.sizes });
      const run = await PipelineParallel.create(line, stage);
      const trainer = await ShardedParallel.create(mesh.comm("data"), stage.parameters, {
        rule,
        stage: 3,
      });
      const readable = () =>
        trainer.layers.filter((name) => {
          try {
            return stage.parameters.get(`${name}.bias`).value.length > 0;
          } catch {
            return false;
          }
        });
      const log: string[][] = [readable()];
      await trainer.step([[batchOf(plan.sizes, 1)]], (all, ready, visit) => {
        const noting = Object.assign(async (layer: string) => {
          await visit(layer);
          log.push(readable());
        }, visit);
        return run.backward(all, ready, noting);
      });
      log.push(readable());
      return log;
    });
    const expected = (first: number) => {
      const [a, b] = [[`layer${first}`], [`layer${first + 1}`]];
      return [[], a, b, b, a, []];
    };
    for (const [rank, log] of seen.entries()) expect(log).toEqual(expected(2 * (rank % 2)));
  });
});

describe("memory", () => {
  // Four layers a stage: 5 · 5 + 5 = 30 elements, padded to 32 over four lines; bytes of float64.
  const [data, layers, padded, share] = [4, 4, 32 * 8, 8 * 8];
  const plan = {
    sizes: new Array<number>(9).fill(5),
    data,
    pipeline: 2,
    microBatches: [3, 3, 3, 3],
  };

  test.each([
    { stage: 1, values: layers * padded, gradients: layers * padded, gathered: 0, summed: 0 },
    { stage: 2, values: layers * padded, gradients: layers * share, gathered: 0, summed: padded },
    {
      stage: 3,
      values: layers * share,
      gradients: layers * share,
      gathered: padded,
      summed: padded,
    },
  ] as const)(
    "of every rank is that of its stage, by the formula: $stage",
    async ({ stage, values, gradients, gathered, summed }) => {
      for (const schedule of ["gpipe", "1f1b"] as const) {
        for (const prefetch of [false, true]) {
          const options = { stage, prefetch, rule: adamW({ learningRate: 0.01 }) };
          const ranks = await onRanks(8, (comm) => trained(comm, { ...plan, schedule, options }));
          for (const [rank, { memory }] of ranks.entries()) {
            expect(memory.values).toEqual({ nowBytes: values, peakBytes: values + gathered });
            expect(memory.gradients).toEqual({
              nowBytes: gradients,
              peakBytes: gradients + summed,
            });
            // Two slots; the last line's share ends in the two elements of padding.
            const isLast = Math.floor(rank / 2) === data - 1;
            const state = 2 * layers * (isLast ? share - 16 : share);
            expect(memory.optimizer).toEqual({ nowBytes: state, peakBytes: state });
            const ahead = stage === 3 && prefetch ? 4 : stage === 3 ? 3 : 2;
            expect(memory.exchange).toEqual({ nowBytes: 0, peakBytes: ahead * padded });
            const nowBytes = values + gradients + state;
            const most = stage === 3 ? ahead + 1 : stage + 1;
            expect(memory.total).toEqual({ nowBytes, peakBytes: nowBytes + most * padded });
          }
        }
      }
    },
  );
});

describe("lines with different numbers of micro-batches", () => {
  test.each(stages)("one of them without a micro-batch: stage %i", async (stage) => {
    const plan = { sizes: [3, 4, 4, 2], data: 3, pipeline: 2, microBatches: [4, 0, 1] };
    const ranks = await onRanks(6, (comm) => trained(comm, { ...plan, options: { stage } }));
    for (const { losses } of ranks) expect(losses).toEqual(ranks[0]!.losses);
    for (const [rank, { values }] of ranks.entries())
      expect(values).toEqual(ranks[rank % 2]!.values);
    expect(ranks[0]!.losses.every((each) => each > 0)).toBe(true);
  });
  test("stages without a layer", async () => {
    const plan = { sizes: [3, 2], data: 2, pipeline: 3, microBatches: [2, 1] };
    const [first, ...others] = await Promise.all(
      stages.map((stage) => onRanks(6, (comm) => trained(comm, { ...plan, options: { stage } }))),
    );
    for (const ranks of others) {
      for (const [rank, { values, losses }] of ranks.entries()) {
        for (const [at, each] of losses.entries()) {
          expect(each).toBeCloseTo(first![rank]!.losses[at]!, 12);
        }
        expect(values.length).toBe(first![rank]!.values.length);
      }
    }
  });
});

describe("checkpoints of all ranks of a mesh", () => {
  const plan = { sizes: [3, 4, 5, 4, 2], data: 2, pipeline: 2, microBatches: [2, 1] };
  /** Steps on to the end, from what is kept. */
  const run = (
    files: CheckpointFiles,
    [data, pipelines]: readonly [number, number],
    until: number,
    stage: ShardingStage,
  ) =>
    onRanks(pipelines * data, async (comm) => {
      const mesh = await Mesh.create(comm, { data, pipeline: pipelines });
      const line = mesh.comm("pipeline");
      const part = mlpStage(line, { sizes: plan.sizes, dtype: "float64", seed: 5 });
      const pipeline = await PipelineParallel.create(line, part, { dtype: "float64" });
      const trainer = await ShardedParallel.create(mesh.comm("data"), part.parameters, {
        stage,
        rule,
      });
      const checkpoints = new Checkpoints(comm, files);
      const parts = { shared: {}, perRank: { trainer } };
      const from = (await checkpoints.load(parts))?.step ?? 0;
      for (let step = from; step < until; step++) {
        // Three micro-batches of a step, wherever they are.
        const own = [0, 1, 2].filter((at) => at % data === mesh.place("data"));
        const batches = own.map((at) => batchOf(plan.sizes, step, at));
        await trainer.step([batches], (all, ready, visit) => pipeline.backward(all, ready, visit));
      }
      await checkpoints.save(until, parts);
      await trainer.gatherValues();
      return [...part.parameters].map(({ name, value }): [string, number[]] => [name, [...value]]);
    });

  test("continue bit by bit, and on other lines, stages and pipelines within rounding", async () => {
    const whole = await run(memoryFiles(), [2, 2], 6, 3);
    const expected = new Map(whole.flat());
    const places = [
      [[2, 2], 3],
      [[3, 2], 1],
      [[1, 5], 3],
      [[4, 1], 2],
      [[1, 2], 2],
      [[2, 3], 3],
      [[1, 4], 3],
    ] as const;
    for (const [extents, stage] of isAll ? places : places.slice(0, 4)) {
      const files = memoryFiles();
      await run(files, [2, 2], 3, 3);
      const rest = await run(files, extents, 6, stage);
      if (String(extents) === "2,2") expect(rest).toEqual(whole);
      expect(new Set(rest.flat().map(([name]) => name))).toEqual(new Set(expected.keys()));
      for (const [name, values] of rest.flat()) {
        for (const [at, each] of values.entries()) {
          expect(each, name).toBeCloseTo(expected.get(name)![at]!, 11);
        }
      }
    }
  });
  test("of a model divided by tensors are refused by another number of ranks, by name", async () => {
    const files = memoryFiles();
    const load = (data: number) =>
      onRanks(2 * data, async (comm) => {
        const mesh = await Mesh.create(comm, { data, tensor: 2 });
        const shape = { vocabulary: 3, context: 2, width: 2, heads: 2, blocks: 1 };
        const { parameters, divided, layerOf } = shardedTransformer(mesh.comm("tensor"), shape);
        const options = { stage: 3, rule, divided, layerOf } as const;
        const trainer = await ShardedParallel.create(mesh.comm("data"), parameters, options);
        const checkpoints = new Checkpoints(comm, files);
        const parts = { shared: {}, perRank: { trainer } };
        if (data === 2) await checkpoints.save(1, parts);
        return checkpoints.load(parts).catch((error: unknown) => error);
      });
    for (const found of await load(2)) expect(found).toMatchObject({ step: 1 });
    for (const error of await load(1)) expect(error).toMatchObject({ code: "ERR_COMM_CHECKPOINT" });
  });

  test("of parts of a parameter are not taken for ranges of it", async () => {
    const files = memoryFiles();
    const load = (data: number, tensor: number) =>
      onRanks(data * tensor, async (comm) => {
        const mesh = await Mesh.create(comm, { data, tensor });
        const length = 8 / tensor;
        const first = mesh.place("tensor") * length;
        const values = Array.from({ length }, (_, at) => first + at);
        const model = new ParameterSet([{ name: "w", shape: [length], values }]);
        const trainer = await ShardedParallel.create(mesh.comm("data"), model, { stage: 3, rule });
        const checkpoints = new Checkpoints(comm, files);
        const parts = { shared: {}, perRank: { trainer } };
        if (tensor === 2) await checkpoints.save(1, parts);
        const found = await checkpoints.load(parts).catch((error: unknown) => error);
        await trainer.gatherValues();
        return [found, [...model.get("w").value]] as const;
      });
    for (const [found] of await load(2, 2)) expect(found).toMatchObject({ step: 1 });
    for (const data of [1, 3, 4]) {
      for (const [error, values] of await load(data, 1)) {
        expect(error).toMatchObject({ code: "ERR_COMM_CHECKPOINT" });
        expect(values).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      }
    }
  });
});

describe("refused arguments:", () => {
  const plan = { sizes: [3, 4, 4, 2], data: 2, pipeline: 2, microBatches: [2, 2] };
  const outcomes = (program: (comm: Communicator) => Promise<unknown>) =>
    onRanks(4, (comm) => program(comm).catch((error: unknown) => error));

  test("another schedule in another line", async () => {
    const found = await outcomes((comm) =>
      trained(comm, { ...plan, schedule: comm.rank < 2 ? "gpipe" : "1f1b", options: { stage: 3 } }),
    );
    // The last stage turns round after each micro-batch by 1f1b alone.
    for (const rank of [1, 3]) {
      expect(found[rank]).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "passes" });
    }
  });

  /** One step on two lines, of which the first does something of its own. */
  const stepped = (odd: (trainer: ShardedParallel, step: () => Promise<unknown>) => unknown) => {
    const found: unknown[] = [];
    return createWorld({ backend: sim(), size: 2 }).then(async (world) => {
      await world
        .run(async (comm) => {
          const mesh = await Mesh.create(comm, { data: 2, pipeline: 1 });
          const line = mesh.comm("pipeline");
          const stage = mlpStage(line, { sizes: [2, 3, 1] });
          const run = await PipelineParallel.create(line, stage);
          const options = { stage: 3, rule } as const;
          const trainer = await ShardedParallel.create(
            mesh.comm("data"),
            stage.parameters,
            options,
          );
          const step = () =>
            trainer.step([[batchOf([2, 3, 1], 1)]], (all, ready, visit) =>
              run.backward(all, ready, visit),
            );
          try {
            await (comm.rank === 0 ? odd(trainer, step) : step());
          } catch (error) {
            found[comm.rank] = error;
            throw error;
          }
        })
        .catch(() => undefined)
        .finally(() => world.close());
      return found;
    });
  };

  test("a line that takes no part, by name", async () => {
    const found = await stepped((trainer) => trainer.step([], () => ({ loss: 0, samples: 0 })));
    expect(found[1]).toMatchObject({ code: "ERR_COMM_ARG", field: "passes" });
    expect(String(found[1])).toContain("step([[]], …) in place of step([], …)");
  });
  test("passes reported twice, or back before forward", async () => {
    const order = (passes: readonly ("forward" | "backward")[]) =>
      stepped((trainer) =>
        trainer.step([0], async (_, __, visit) => {
          await visit.passes(1, () => passes);
          await visit.passes(1, () => passes);
          return { loss: 0, samples: 1 };
        }),
      );
    const [backFirst] = await order(["backward", "forward"]);
    expect(String(backFirst)).toContain("found the order backward forward, needs 1 forward");
    const [short] = await order(["forward"]);
    expect(String(short)).toContain("found the order forward, needs 1 forward, and each back");
    const [twice] = await order(["forward", "backward"]);
    expect(String(twice)).toContain("found passes announced after a visit");
  });
  test("a pipeline at stage 3 without the visits", async () => {
    const found = await outcomes((comm) =>
      trained(comm, { ...plan, visits: false, options: { stage: 3 } }),
    );
    for (const rank of [0, 2]) {
      expect(found[rank]).toMatchObject({ code: "ERR_COMM_ARG", field: "layer0.weight" });
      expect(String(found[rank])).toContain("its values are not gathered on this rank");
    }
  });
  test("a pass that is skipped in its middle, and one too many", async () => {
    const [middle] = await stepped((trainer) =>
      trainer.step([0], async (_, __, visit) => {
        await visit.passes(1, () => ["forward", "backward"]);
        await visit("layer0");
        await visit.skip();
        return { loss: 0, samples: 1 };
      }),
    );
    expect(String(middle)).toContain("found a pass skipped that has begun");
    const [many] = await stepped((trainer) =>
      trainer.step([0], async (_, __, visit) => {
        for (let at = 0; at < 3; at++) await visit.skip();
        return { loss: 0, samples: 1 };
      }),
    );
    expect((many as { code: string }).code).toMatch(/ERR_COMM_(ARG|MISMATCH|REMOTE)/);
  });
  test("a stage that ends before its passes do", async () => {
    const [early] = await stepped((trainer) =>
      trainer.step([0], async (_, __, visit) => {
        await visit.passes(1, () => ["forward", "backward"]);
        await visit("layer0");
        return { loss: 0, samples: 1 };
      }),
    );
    expect(String(early)).toContain(
      "backward ended after 1 visits, needs 4: every layer in 2 passes",
    );
  });
});
