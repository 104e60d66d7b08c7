/** A divided transformer of any shape on any number of ranks: the whole one's numbers, or a typed error; never a hang. */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import { gatherTensor, Random } from "twinccl/parallel";
import { addTo, shardedTransformer, transformer } from "twinccl/parallel/models";
import { failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const cases = fc.record({
  size: fc.integer({ min: 1, max: 5 }),
  heads: fc.integer({ min: 1, max: 4 }),
  headWidth: fc.integer({ min: 1, max: 3 }),
  hidden: fc.integer({ min: 1, max: 9 }),
  blocks: fc.integer({ min: 1, max: 2 }),
  sequences: fc.integer({ min: 1, max: 3 }),
  length: fc.integer({ min: 1, max: 4 }),
  seed: fc.nat(1000),
});
type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

function parts({ heads, headWidth, hidden, blocks, sequences, length, seed }: Case) {
  const random = new Random(seed);
  const shape = { vocabulary: 5, context: 4, width: heads * headWidth, heads, hidden, blocks };
  const tokens = Array.from({ length: sequences * (length + 1) }, () => random.below(5));
  return { options: { ...shape, dtype: "float64", seed } as const, batch: { tokens, sequences } };
}

/** One backward by all ranks, every gradient put together. */
async function gradients(comm: Communicator, one: Case): Promise<Map<string, ArrayLike<number>>> {
  const { options, batch } = parts(one);
  const model = shardedTransformer(comm, options);
  await model.backward(batch, addTo(model.parameters));
  const all = new Map<string, ArrayLike<number>>();
  for (const { name, shape, gradient } of model.parameters) {
    const axis = model.axisOf(name);
    const part = { shape, data: gradient };
    all.set(name, axis === undefined ? gradient : (await gatherTensor(comm, part, axis)).data);
  }
  return all;
}

test("gives the gradients of the whole model", async () => {
  await holds(
    cases,
    async (one) => {
      const { options, batch } = parts(one);
      const whole = transformer(options);
      whole.backward(batch, addTo(whole.parameters));
      const largest = Math.max(...whole.parameters.gradients("float64").map(Math.abs));
      const world = await createWorld({ backend: sim({ seed: one.seed }), size: one.size });
      try {
        for (const found of await world.run((comm) => gradients(comm, one))) {
          for (const { name, gradient } of whole.parameters) {
            const own = found.get(name) ?? [];
            expect(own.length).toBe(gradient.length);
            gradient.forEach((each, at) => {
              expect(Math.abs((own[at] as number) - each), name).toBeLessThanOrEqual(
                1e-10 * largest,
              );
            });
          }
        }
      } finally {
        await world.close();
      }
    },
    40,
  );
});

test("ends in typed errors on all ranks when one fails at any call", async () => {
  await holds(
    fc.record({ one: cases, rank: fc.nat(4), call: fc.nat(12) }),
    async ({ one, rank, call }) => {
      const backend = sim({ seed: one.seed, faults: [failAt(rank % one.size, call)] });
      const world = await createWorld({ backend, size: one.size });
      try {
        const outcome = await world.run((comm) => gradients(comm, one)).catch((error) => error);
        // Gathering alone makes more calls than the last of these numbers.
        expect(outcome).toBeInstanceOf(WorldError);
        const { failures } = outcome as WorldError;
        expect(failures.length).toBeGreaterThan(0);
        for (const { error } of failures) expect(error).toBeInstanceOf(CommError);
      } finally {
        await world.close();
      }
    },
    40,
  );
});
