/**
 * Data parallelism on random models: odd shapes, uneven batches, any order of readiness, any option, ranks that fail.
 *
 * The numbers are right or there is a typed error; a run that hangs fails by its deadline. Right is judged without the
 * library: gradients are small integers, so their sums are exact in any order, and what the mean has to be is computed
 * here from the batches alone.
 */
import fc from "fast-check";
import { CommError, createWorld, type World, WorldError } from "twinccl";
import {
  Checkpoints,
  DataParallel,
  type DataParallelOptions,
  memoryFiles,
  type ParameterDeclaration,
  ParameterSet,
} from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds, partOfCases } from "../support/seed.ts";

/** One micro-batch of one rank: its samples, and what each parameter's gradient is filled with; `undefined`: none. */
interface Micro {
  readonly samples: number;
  readonly fills: readonly (number | undefined)[];
}

interface Case {
  readonly size: number;
  readonly declarations: readonly ParameterDeclaration[];
  readonly options: DataParallelOptions;
  /** By step, rank and micro-batch. */
  readonly steps: readonly (readonly (readonly Micro[])[])[];
  /** Every rank declares, and every micro-batch is ready, in an order that follows from this. */
  readonly shuffle: number;
}

const names = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 5 }), {
  minLength: 1,
  maxLength: 7,
});
const shapes = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 3 });
const declared: fc.Arbitrary<ParameterDeclaration[]> = names.chain((all) =>
  fc.tuple(
    ...all.map((name) =>
      fc.record({
        name: fc.constant(name),
        shape: shapes,
        dtype: fc.constantFrom("float32", "float64"),
      }),
    ),
  ),
) as fc.Arbitrary<ParameterDeclaration[]>;

/** Options under which sums of small integers stay exact. */
const exactOptions = fc.record({
  bucketBytes: fc.constantFrom(1, 16, 100, 4096),
  unused: fc.constantFrom("refuse", "zeros"),
  wire: fc.constantFrom("full", "full", "float16", "bfloat16", { topK: 1 }),
}) as fc.Arbitrary<DataParallelOptions>;

const cases: fc.Arbitrary<Case> = fc
  .tuple(fc.integer({ min: 1, max: 5 }), declared, exactOptions, fc.nat())
  .chain(([size, declarations, options, shuffle]) => {
    const fill = fc.option(fc.integer({ min: -3, max: 3 }), { nil: undefined, freq: 12 });
    const micro = fc.record({
      samples: fc.integer({ min: 0, max: 4 }),
      fills: fc.array(fill, { minLength: declarations.length, maxLength: declarations.length }),
    });
    const rank = fc.array(micro, { maxLength: 3 });
    const step = fc.array(rank, { minLength: size, maxLength: size });
    const steps = fc.array(step, { minLength: 1, maxLength: 3 });
    return steps.map((made) => ({ size, declarations, options, steps: made, shuffle }));
  });

function turned<T>(list: readonly T[], by: number): T[] {
  return list.map((_, at) => list[(at + by) % list.length]!);
}

/** The required outcome of one step: the value of every element of each gradient, by name, or the code of the error. */
function expectedOf({ declarations, options }: Case, ranks: readonly (readonly Micro[])[]) {
  const samples = ranks.flat().reduce((sum, each) => sum + each.samples, 0);
  const missing = declarations.some((_, at) =>
    ranks.some(
      (micros) =>
        micros.some((each) => each.samples > 0) &&
        micros.every(({ fills }) => fills[at] === undefined),
    ),
  );
  if (options.unused === "refuse" && missing) return "ERR_COMM_UNUSED";
  if (samples === 0) return "ERR_COMM_ARG";
  return new Map(
    declarations.map(({ name, dtype }, at) => {
      const sum = ranks.flat().reduce((total, { fills }) => total + (fills[at] ?? 0), 0);
      return [name, dtype === "float64" ? sum / samples : Math.fround(sum / samples)];
    }),
  );
}

/** Runs all steps on every rank and judges each. */
async function runCase(world: World, test: Case): Promise<void> {
  const { declarations, options, steps, shuffle } = test;
  await world.run(async (comm) => {
    const set = new ParameterSet(turned(declarations, shuffle + comm.rank));
    const trainer = await DataParallel.create(comm, set, options);
    for (const ranks of steps) {
      const micros = ranks[comm.rank]!;
      const outcome = await trainer
        .step(micros, async ({ samples, fills }, ready) => {
          for (const at of turned([...declarations.keys()], shuffle)) {
            if (shuffle % 3 === 0) await Promise.resolve();
            const value = fills[at];
            const { name } = declarations[at]!;
            if (value !== undefined)
              ready(name, new Float64Array(set.get(name).length).fill(value));
          }
          return { loss: samples, samples };
        })
        .catch((error: unknown) => {
          if (
            error instanceof CommError &&
            ["ERR_COMM_UNUSED", "ERR_COMM_ARG"].includes(error.code)
          ) {
            return error.code;
          }
          throw error;
        });
      const expected = expectedOf(test, ranks);
      if (typeof expected === "string" || typeof outcome === "string") {
        expect(outcome).toBe(expected);
        continue;
      }
      let square = 0;
      for (const { name, length, gradient } of set) {
        const value = expected.get(name)!;
        // -0 is what a sum of nothing but negative zeros has; the sign of a zero is no matter here.
        expect([...gradient].map((each) => each + 0)).toEqual(new Array(length).fill(value + 0));
        square += length * value * value;
      }
      expect(outcome.gradientNorm).toBeCloseTo(Math.sqrt(square), 8);
      expect(outcome.loss).toBe(1);
    }
    trainer[Symbol.dispose]();
  });
}

test("the mean is right for any model, batches, order and option, and lent buffers are not written", async () => {
  let judged = 0;
  await holds(
    cases,
    async (each) => {
      const world = await createWorld({
        backend: sim({ seed: each.shuffle, strict: true }),
        size: each.size,
      });
      await runCase(world, each).finally(() => world.close());
      judged += each.steps.filter((ranks) => typeof expectedOf(each, ranks) !== "string").length;
    },
    300,
  );
  // Enough of the cases must be about numbers, not about refusals alone.
  expect(judged).toBeGreaterThan(40 * partOfCases);
});

test("a rank that fails at any call ends the run with typed errors, and the next run is right", async () => {
  let struck = 0;
  await holds(
    fc.tuple(cases, fc.nat(), fc.nat(25)),
    async ([each, which, call]) => {
      const rank = which % each.size;
      const backend = sim({ seed: which, faults: [failAt(rank, call)] });
      const world = await createWorld({ backend, size: each.size });
      try {
        const error = await runCase(world, each).then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
        if (error === undefined) return;
        struck++;
        expect(error).toBeInstanceOf(WorldError);
        const { failures } = error as WorldError;
        expect(failures.find((failure) => failure.rank === rank)?.error).toMatchObject({
          code: "ERR_COMM_FAULT",
        });
        for (const { rank: other, error: theirs } of failures) {
          if (other === rank) continue;
          // A call that was posted together with the failing one is cancelled with it.
          expect(["ERR_COMM_REMOTE", "ERR_COMM_ABORTED"]).toContain((theirs as CommError).code);
          expect((theirs as CommError).ranks).toEqual([rank]);
        }
        await runCase(world, each);
      } finally {
        await world.close();
      }
    },
    200,
  );
  expect(struck).toBeGreaterThan(50 * partOfCases);
});

test("a rank that fails at any call of a save leaves a complete checkpoint", async () => {
  let struck = 0;
  const plans = fc.record({
    size: fc.integer({ min: 2, max: 4 }),
    rank: fc.nat(),
    call: fc.nat(20),
    declarations: declared,
  });
  await holds(
    plans,
    async ({ size, rank, call, declarations }) => {
      const files = memoryFiles();
      const program = (world: World, number: number, saves: boolean): Promise<number[][]> =>
        world.run(async (comm) => {
          const model = new ParameterSet(declarations);
          for (const { value } of model) value.fill(saves ? number : -1);
          const checkpoints = new Checkpoints(comm, files, { keep: 1 });
          if (saves) await checkpoints.save(number, { shared: { model } });
          else expect(await checkpoints.load({ shared: { model } })).toBeDefined();
          return [...model].flatMap(({ value }) => [...value]);
        });
      const sound = await createWorld({ backend: sim(), size });
      await program(sound, 1, true);
      const faulty = await createWorld({
        backend: sim({ faults: [failAt(rank % size, call)] }),
        size,
      });
      const error = await program(faulty, 2, true).catch((thrown: unknown) => thrown);
      if (error instanceof WorldError) struck++;
      for (const { error: each } of error instanceof WorldError ? error.failures : []) {
        expect(each).toBeInstanceOf(CommError);
      }
      const loaded = await program(sound, 0, false);
      const value = loaded[0]![0];
      if (value !== undefined) expect([1, 2]).toContain(value);
      for (const values of loaded) expect(values.every((found) => found === value)).toBe(true);
      if (!(error instanceof WorldError) && value !== undefined) expect(value).toBe(2);
      await sound.close();
      await faulty.close();
    },
    120,
  );
  expect(struck).toBeGreaterThan(20 * partOfCases);
});
