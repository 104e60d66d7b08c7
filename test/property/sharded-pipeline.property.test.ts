/**
 * Pipelines with sharded state of any stages, widths, lines and micro-batches: the one-rank numbers, or typed errors; never a
 * hang.
 */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  Mesh,
  Optimizer,
  PipelineParallel,
  type PipelineSchedule,
  Random,
  ShardedParallel,
  type ShardingStage,
  sgd,
} from "twinccl/parallel";
import { addTo, type MlpBatch, mlp, mlpStage } from "twinccl/parallel/models";
import { type Fault, failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds, runsOf } from "../support/seed.ts";

const cases = fc
  .record({
    data: fc.integer({ min: 1, max: 3 }),
    pipeline: fc.integer({ min: 1, max: 3 }),
    stage: fc.constantFrom<ShardingStage>(1, 2, 3, 3),
    prefetch: fc.boolean(),
    visits: fc.boolean(),
    schedule: fc.constantFrom<PipelineSchedule>("gpipe", "1f1b"),
    sizes: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 2, maxLength: 5 }),
    /** Micro-batches of each line. */
    lines: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 3, maxLength: 3 }),
    clip: fc.constantFrom(0.1, 1e9),
    seed: fc.nat(1000),
  })
  // A rank without micro-batches has no gradients; at least one rank must have some.
  .filter(({ data, lines }) => lines.slice(0, data).some((each) => each > 0));
type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

const STEPS = 2;
const rule = () => sgd({ learningRate: 0.3, momentum: 0.5 });
const optionsOf = ({ sizes, seed }: Case) => ({ sizes, dtype: "float64", seed }) as const;

function batchesOf({ sizes, lines, seed }: Case, step: number, line: number): MlpBatch[] {
  return Array.from({ length: lines[line]! }, (_, at) => {
    const random = new Random(seed, step, line, at);
    const rows = 1 + random.below(3);
    const draw = (width: number) => Array.from({ length: rows * width }, () => random.normal());
    return { input: draw(sizes[0]!), target: draw(sizes.at(-1)!) };
  });
}

async function run(comm: Communicator, one: Case) {
  const { data, pipeline, stage, prefetch, schedule, clip } = one;
  const mesh = await Mesh.create(comm, { data, pipeline });
  const line = mesh.comm("pipeline");
  const part = mlpStage(line, optionsOf(one));
  const stages = await PipelineParallel.create(line, part, { schedule, dtype: "float64" });
  const trainer = await ShardedParallel.create(mesh.comm("data"), part.parameters, {
    stage,
    prefetch,
    rule: rule(),
    maxGradientNorm: clip,
    divided: { comm: line, copies: () => 1 },
  });
  const norms: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const own = batchesOf(one, step, mesh.place("data"));
    const { gradientNorm } = await trainer.step([own], (all, ready, visit) =>
      stages.backward(all, ready, stage === 3 || one.visits ? visit : undefined),
    );
    norms.push(gradientNorm);
  }
  await trainer.gatherValues();
  const values = [...part.parameters].map(({ name, value }): [string, number[]] => [
    name,
    [...value],
  ]);
  return { norms, values };
}

function alone(one: Case) {
  const model = mlp(optionsOf(one));
  const optimizer = new Optimizer(model.parameters, rule());
  const gradients = model.parameters.gradients("float64");
  const norms: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    gradients.fill(0);
    let weight = 0;
    for (let line = 0; line < one.data; line++) {
      for (const batch of batchesOf(one, step, line)) {
        weight += model.backward(batch, addTo(model.parameters)).weight!;
      }
    }
    const norm = Math.hypot(...gradients) / weight;
    const factor = Math.min(1, one.clip / norm) / weight;
    for (const [at, each] of gradients.entries()) gradients[at] = each * factor;
    optimizer.step();
    norms.push(norm);
  }
  return { norms, values: [...model.parameters].map(({ name, value }) => ({ name, value })) };
}

async function onWorld(one: Case, faults: Fault[] = []) {
  const size = one.data * one.pipeline;
  const world = await createWorld({ backend: sim({ seed: one.seed, faults }), size });
  try {
    return await world.run(async (comm) => ({
      ...(await run(comm, one)),
      calls: Object.values(comm.stats().calls).reduce((sum, each) => sum + each, 0),
    }));
  } finally {
    await world.close();
  }
}

function expectClose(found: readonly number[], expected: ArrayLike<number>, what: string): void {
  const largest = Math.max(...Array.from(expected, Math.abs), 1e-300);
  expect(found.length, what).toBe(expected.length);
  for (const [at, each] of found.entries()) {
    expect(Math.abs(each - expected[at]!), what).toBeLessThanOrEqual(1e-10 * largest);
  }
}

test("two steps have the norms and values of one rank", async () => {
  await holds(
    cases,
    async (one) => {
      const expected = alone(one);
      const ranks = await onWorld(one);
      const seen = new Map(ranks.flatMap(({ values }) => values));
      for (const { norms } of ranks) expectClose(norms, expected.norms, "norms");
      expect(seen.size).toBe(expected.values.length);
      for (const { name, value } of expected.values) expectClose(seen.get(name)!, value, name);
      for (const { values } of ranks) {
        for (const [name, each] of values) expect(each).toEqual(seen.get(name));
      }
      expect(await onWorld(one)).toEqual(ranks);
    },
    60,
  );
});

test("end in typed errors on all ranks when one fails at any call", async () => {
  let struck = 0;
  await holds(
    fc.record({ one: cases, rank: fc.nat(8), call: fc.nat(150) }),
    async ({ one, rank, call }) => {
      const fault = failAt(rank % (one.data * one.pipeline), call);
      const outcome = await onWorld(one, [fault]).catch((error: unknown) => error);
      // The rank made fewer calls.
      if (Array.isArray(outcome)) return;
      struck++;
      expect(outcome).toBeInstanceOf(WorldError);
      const { failures } = outcome as WorldError;
      expect(failures.length).toBeGreaterThan(0);
      for (const { error } of failures) expect(error).toBeInstanceOf(CommError);
    },
    60,
  );
  expect(struck).toBeGreaterThan(runsOf(60) / 6);
});
