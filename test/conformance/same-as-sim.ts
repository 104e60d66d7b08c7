/**
 * The promise of the project on one backend: what it computes has the simulation's bits.
 *
 * Arbitrary bits wherever the simulation claims NCCL's plan: ranks in the order of their devices, one scalar for all
 * ranks of a pre-multiplied sum. Exact contents elsewhere. How much was compared is printed.
 */

import fc from "fast-check";
import type { Backend } from "twinccl";
import { sim } from "twinccl/sim";
import {
  checkProperty,
  expectSame,
  type Program,
  programs,
  replayLine,
  runProgramIn,
} from "twinccl/testing";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { everyDType } from "../../src/testing/oracle/elements.ts";
import type { OracleDType } from "../../src/testing/oracle/rounding.ts";
import { claimedBits, takenByNccl } from "../support/claimed-programs.ts";
import { Compared } from "../support/compared.ts";
import { everyCall, longFolds } from "../support/every-call.ts";
import { OpenWorlds } from "../support/open-worlds.ts";
import { replay } from "../support/seed.ts";

/** The subject of the comparison, and its duration. */
export interface SameAsSim {
  readonly name: string;
  readonly backend: () => Backend;
  readonly sizes: readonly number[];
  /** Elements of the longest folds. */
  readonly longest: number;
  /** Random programs are compared until so many seconds after the first test began. */
  readonly seconds: number;
  /** Command that runs the file again. */
  readonly command: string;
}

/** Programs of a batch; the clock is looked at after each. */
const batch = 10;

/** All tests of one backend. */
export function sameAsSim({ name, backend, sizes, longest, seconds, command }: SameAsSim): void {
  const subject = new OpenWorlds(backend);
  const twin = new OpenWorlds(() => sim());
  const otherOrder = new OpenWorlds(() => sim({ algorithms: otherAlgorithms }));
  let end = Number.POSITIVE_INFINITY;

  beforeAll(() => {
    end = performance.now() + 1000 * seconds;
  });
  afterAll(async () => {
    for (const worlds of [subject, twin, otherOrder]) await worlds.close();
  });

  async function compare(planned: Program, compared: Compared): Promise<void> {
    const program = takenByNccl(planned);
    const { size } = program;
    const found = await subject.use(size, (world) => runProgramIn(world, program, { label: name }));
    const norm = await twin.use(size, (world) => runProgramIn(world, program));
    expectSame(found, norm);
    const other = await otherOrder.use(size, (world) => runProgramIn(world, program));
    compared.count(norm, other);
  }

  /** Dtypes that the backend takes; the others are named. */
  async function takenDTypes(size: number): Promise<OracleDType[]> {
    return subject.use(size, async (world) => {
      const taken = await world.run((comm) =>
        everyDType.filter((dtype) =>
          comm.supports({ collective: "allReduce", dtype, op: "sum", count: 1 }),
        ),
      );
      const missing = everyDType.filter((dtype) => !taken[0]!.includes(dtype));
      if (missing.length > 0) print(`${name} does not take ${missing.join(", ")}: not compared`);
      return taken[0]!;
    });
  }

  describe(`${name} has the simulation's bits`, () => {
    test.each([...sizes])(
      "in every collective, dtype, operator and form, on %i ranks",
      async (size) => {
        const compared = new Compared();
        for (const dtype of await takenDTypes(size)) {
          for (const program of everyCall(dtype, size)) await compare(program, compared);
        }
        print(`every call on ${size} ranks: ${compared}`);
        expect(compared.calls).toBeGreaterThan(1000);
        // Two values have one order; three and more must be seen to have several.
        if (size > 2) expect(compared.orderSensitive).toBeGreaterThan(1000);
      },
      60_000 * Math.max(4, Math.max(...sizes)),
    );

    test("in long folds", async () => {
      const compared = new Compared();
      const size = Math.max(...sizes);
      for (const dtype of ["float32", "bfloat16", "float16", "int32", "float64"] as const) {
        for (const count of [4097, longest >> 3, longest]) {
          await compare(longFolds(dtype, size, count + 1), compared);
        }
      }
      print(`long folds on ${size} ranks: ${compared}`);
      expect(compared.programs).toBe(15);
    });

    test(
      "in whole random programs",
      async () => {
        const compared = new Compared();
        const taken = new Set<string>(await takenDTypes(Math.max(...sizes)));
        const law = async (program: Program): Promise<void> => {
          if (dtypesIn(program).every((dtype) => taken.has(dtype)))
            await compare(program, compared);
        };
        const began = performance.now();
        let { seed } = replay;
        for (;;) {
          await checkProperty(claimed(sizes), law, { ...replay, seed, runs: batch, command });
          if (performance.now() > end || replay.path !== undefined) break;
          seed += 1;
        }
        const took = ((performance.now() - began) / 1000).toFixed(1);
        print(
          `seeds ${replay.seed}..${seed}: ${compared}, in ${took} s; ${replayLine(replay, command)}`,
        );
        if (replay.path === undefined) expect(compared.programs).toBeGreaterThan(0);
      },
      1000 * seconds + 120_000,
    );
  });
}

/** Orders of folding that NCCL does not have. */
const otherAlgorithms = {
  allReduce: "linear",
  reduce: "binomial",
  reduceScatter: "recursive-halving",
} as const;

/** Programs that a claim of equal bits is made for. */
function claimed(among: readonly number[]): fc.Arbitrary<Program> {
  const sizes = fc.constantFrom(...among);
  const bits = { ...claimedBits, sizes, maxSplits: 1 };
  return fc.oneof(
    { weight: 6, arbitrary: programs({ ...bits, maxSteps: 8 }) },
    { weight: 2, arbitrary: programs({ ...bits, maxSteps: 3, maxElements: 9000 }) },
    { weight: 2, arbitrary: programs({ sizes, symmetric: true, maxSteps: 6 }) },
  );
}

function dtypesIn(program: Program): OracleDType[] {
  return program.steps
    .flatMap((step) => (step.kind === "call" ? [step.call] : step.calls))
    .flatMap((call) => (call.kind === "barrier" ? [] : [call.dtype]));
}

function print(line: string): void {
  process.stderr.write(`${line}\n`);
}
