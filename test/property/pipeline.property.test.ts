/** A pipeline of any stages, widths and micro-batches: the one-rank numbers, or typed errors; never a hang. */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import { PipelineParallel, type PipelineSchedule, Random } from "twinccl/parallel";
import { addTo, type MlpBatch, mlp, mlpStage } from "twinccl/parallel/models";
import { type Fault, failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const cases = fc.record({
  size: fc.integer({ min: 1, max: 6 }),
  sizes: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 2, maxLength: 6 }),
  /** Rows of each micro-batch. */
  rows: fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 7 }),
  schedule: fc.constantFrom<PipelineSchedule>("gpipe", "1f1b"),
  seed: fc.nat(1000),
});
type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

function parts({ sizes, rows, seed }: Case) {
  const random = new Random(seed);
  const draw = (count: number) => Array.from({ length: count }, () => random.normal());
  const batches: MlpBatch[] = rows.map((each) => ({
    input: draw(each * sizes[0]!),
    target: draw(each * sizes.at(-1)!),
  }));
  return { options: { sizes, dtype: "float64", seed } as const, batches };
}

async function step(comm: Communicator, one: Case) {
  const { options, batches } = parts(one);
  const stage = mlpStage(comm, options);
  const { schedule } = one;
  const pipeline = await PipelineParallel.create(comm, stage, { schedule, dtype: "float64" });
  const result = await pipeline.backward(batches, addTo(stage.parameters));
  return {
    result: result,
    gradients: [...stage.parameters].map(({ name, gradient }) => ({ name, gradient })),
  };
}

test("has the loss and the gradients of the whole model, to the bit", async () => {
  await holds(
    cases,
    async (one) => {
      const { options, batches } = parts(one);
      const whole = mlp(options);
      const expected = { loss: 0, samples: 0, weight: 0 };
      for (const batch of batches) {
        const { loss, samples, weight = samples } = whole.backward(batch, addTo(whole.parameters));
        expected.loss += loss;
        expected.samples += samples;
        expected.weight += weight;
      }
      const world = await createWorld({ backend: sim({ seed: one.seed }), size: one.size });
      try {
        const stages = await world.run((comm) => step(comm, one));
        const seen = new Map(
          stages.flatMap(({ gradients }) =>
            gradients.map((each): [string, ArrayLike<number>] => [each.name, each.gradient]),
          ),
        );
        expect(seen.size).toBe(whole.parameters.size);
        for (const { name, gradient } of whole.parameters) {
          expect(seen.get(name), name).toEqual(gradient);
        }
        for (const [rank, { result }] of stages.entries()) {
          const most = one.schedule === "gpipe" ? one.rows.length : one.size - rank;
          expect(result).toEqual({ ...expected, held: Math.min(most, one.rows.length) });
        }
      } finally {
        await world.close();
      }
    },
    60,
  );
});

test("ends in typed errors on all ranks when one fails at any call", async () => {
  await holds(
    fc.record({ one: cases, rank: fc.nat(5), call: fc.nat(200) }),
    async ({ one, rank, call }) => {
      const victim = rank % one.size;
      const runWith = async (faults: Fault[]) => {
        const world = await createWorld({
          backend: sim({ seed: one.seed, faults }),
          size: one.size,
        });
        try {
          return await world.run(async (comm) => {
            await step(comm, one);
            return Object.values(comm.stats().calls).reduce((sum, each) => sum + each, 0);
          });
        } finally {
          await world.close();
        }
      };
      const calls = (await runWith([]))[victim]!;
      const outcome = await runWith([failAt(victim, call % calls)]).catch(
        (error: unknown) => error,
      );
      expect(outcome).toBeInstanceOf(WorldError);
      const { failures } = outcome as WorldError;
      expect(failures.length).toBeGreaterThan(0);
      for (const { error } of failures) expect(error).toBeInstanceOf(CommError);
    },
    40,
  );
});

test("ends in typed errors when ranks differ in their micro-batches", async () => {
  await holds(
    fc.record({ one: cases, more: fc.integer({ min: 1, max: 3 }), rank: fc.nat(5) }),
    async ({ one, more, rank }) => {
      const size = Math.max(2, one.size);
      const odd = rank % size;
      const rows = [...one.rows, ...new Array<number>(more).fill(1)];
      const world = await createWorld({ backend: sim({ seed: one.seed }), size });
      try {
        const errors = await world.run((comm) =>
          step(comm, comm.rank === odd ? { ...one, rows } : one).catch((error: unknown) => error),
        );
        for (const error of errors) expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH" });
      } finally {
        await world.close();
      }
    },
    20,
  );
});
