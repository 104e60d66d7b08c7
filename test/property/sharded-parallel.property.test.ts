/**
 * Sharded training of random models: odd shapes, any layers, uneven batches, any stage, ranks that fail.
 *
 * Gradients are small integers, so their sums are exact in any order, and one step of plain descent is computed here from
 * the batches alone. The numbers are right or there is a typed error; a run that hangs fails by its deadline.
 */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  Checkpoints,
  memoryFiles,
  type ParameterDeclaration,
  ParameterSet,
  ShardedParallel,
  type ShardingStage,
  sgd,
} from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds, partOfCases } from "../support/seed.ts";

interface Case {
  readonly size: number;
  readonly stage: ShardingStage;
  readonly prefetch: boolean;
  /** By layer, its parameters. */
  readonly layers: readonly (readonly ParameterDeclaration[])[];
  /** Micro-batches by rank: what every gradient is filled with. */
  readonly fills: readonly (readonly number[])[];
  readonly readers: number;
  readonly seed: number;
}

const shapes = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 3 });
const layer = fc.array(
  fc.record({ shape: shapes, dtype: fc.constantFrom("float32" as const, "float64" as const) }),
  { minLength: 1, maxLength: 3 },
);
const cases: fc.Arbitrary<Case> = fc
  .record({
    size: fc.integer({ min: 1, max: 5 }),
    stage: fc.constantFrom<ShardingStage>(1, 2, 3),
    prefetch: fc.boolean(),
    layers: fc.array(layer, { minLength: 1, maxLength: 4 }),
    readers: fc.integer({ min: 1, max: 4 }),
    seed: fc.nat(),
  })
  .chain(({ layers, ...rest }) =>
    fc
      .array(fc.array(fc.integer({ min: -3, max: 3 }), { maxLength: 3 }), {
        minLength: rest.size,
        maxLength: rest.size,
      })
      .map((fills) => ({
        ...rest,
        fills,
        layers: layers.map((parameters, at) =>
          parameters.map((each, index) => ({ ...each, name: `layer${at}.${index}` })),
        ),
      })),
  );

const declared = ({ layers }: Case): ParameterDeclaration[] =>
  layers.flat().map((each) => {
    const length = each.shape.reduce((product, extent) => product * extent, 1);
    return { ...each, values: Array.from({ length }, (_, at) => at) };
  });

async function trainerOn(comm: Communicator, one: Case) {
  const declarations = declared(one);
  // The order of use is the root's.
  const model = new ParameterSet(comm.rank === 0 ? declarations : declarations.toReversed());
  const rule = sgd({ learningRate: 1, momentum: 0.5 });
  const { stage, prefetch } = one;
  const trainer = await ShardedParallel.create(comm, model, { stage, prefetch, rule });
  return { model, trainer };
}

/** One step on every rank, and the values after it. */
async function stepped(comm: Communicator, one: Case): Promise<Map<string, number[]>> {
  const { model, trainer } = await trainerOn(comm, one);
  const there = one.layers.map((parameters, at) => ({ name: `layer${at}`, parameters }));
  await trainer.step(one.fills[comm.rank]!, async (fill, ready, visit) => {
    for (const { name, parameters } of there) {
      await visit(name);
      for (const each of parameters) expect(model.get(each.name).value[1] ?? 1).toBe(1);
    }
    for (const { name, parameters } of there.toReversed()) {
      await visit(name);
      for (const each of parameters) {
        ready(each.name, new Float64Array(model.get(each.name).length).fill(fill));
      }
    }
    return { loss: fill, samples: 2 };
  });
  const files = memoryFilesOf(comm);
  if (files !== undefined) {
    await new Checkpoints(comm, files).save(1, { shared: {}, perRank: { trainer } });
  }
  await trainer.gatherValues();
  return new Map([...model].map(({ name, value }) => [name, [...value]]));
}

let shared: ReturnType<typeof memoryFiles> | undefined;
const memoryFilesOf = (_: Communicator) => shared;

function expectRight(found: ReadonlyMap<string, readonly number[]>, one: Case): void {
  const all = one.fills.flat();
  const mean = all.reduce((sum, each) => sum + each, 0) / (2 * all.length);
  for (const { name, dtype, values } of declared(one)) {
    const round = dtype === "float32" ? Math.fround : (each: number) => each;
    const expected = Array.from(values!, (each) => round(each - round(mean)) + 0);
    expect(
      found.get(name)!.map((each) => each + 0),
      name,
    ).toEqual(expected);
  }
}

test("one step is right for any shapes, layers, batches and stage, and any number of ranks may load it", async () => {
  let judged = 0;
  await holds(
    cases,
    async (one) => {
      shared = memoryFiles();
      const world = await createWorld({
        backend: sim({ seed: one.seed, strict: true }),
        size: one.size,
      });
      const outcome = await world
        .run((comm) => stepped(comm, one))
        .catch((error: unknown) => error)
        .finally(() => world.close());
      if (one.fills.flat().length === 0) {
        // No rank had a sample: refused on all of them.
        expect(outcome).toBeInstanceOf(WorldError);
        for (const { error } of (outcome as WorldError).failures) {
          expect((error as CommError).code).toMatch(/ERR_COMM_(ARG|UNUSED)/);
        }
        return;
      }
      if (!Array.isArray(outcome)) throw outcome;
      for (const found of outcome) expectRight(found, one);
      const other = await createWorld({ backend: sim(), size: one.readers });
      const read = await other
        .run(async (comm) => {
          const { model, trainer } = await trainerOn(comm, one);
          const parts = { shared: {}, perRank: { trainer } };
          await new Checkpoints(comm, shared!).load(parts);
          await trainer.gatherValues();
          return new Map([...model].map(({ name, value }) => [name, [...value]]));
        })
        .finally(() => other.close());
      for (const each of read) expect(each).toEqual(outcome[0]);
      judged++;
    },
    120,
  );
  expect(judged).toBeGreaterThan(60 * partOfCases);
});

test("a rank that fails at any call ends the run with typed errors, and the next run is right", async () => {
  let struck = 0;
  shared = undefined;
  await holds(
    fc.tuple(cases, fc.nat(), fc.nat(30)),
    async ([one, which, call]) => {
      if (one.fills.flat().length === 0) return;
      const rank = which % one.size;
      const backend = sim({ seed: one.seed, faults: [failAt(rank, call)] });
      const world = await createWorld({ backend, size: one.size });
      try {
        const outcome = await world
          .run((comm) => stepped(comm, one))
          .catch((error: unknown) => error);
        if (Array.isArray(outcome)) {
          for (const found of outcome) expectRight(found, one);
          return;
        }
        struck++;
        expect(outcome).toBeInstanceOf(WorldError);
        const { failures } = outcome as WorldError;
        expect(failures.map((each) => each.rank)).toContain(rank);
        for (const { error } of failures) expect(error).toBeInstanceOf(CommError);
        for (const found of await world.run((comm) => stepped(comm, one))) expectRight(found, one);
      } finally {
        await world.close();
      }
    },
    100,
  );
  expect(struck).toBeGreaterThan(30 * partOfCases);
});
