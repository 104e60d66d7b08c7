/**
 * Whole random programs over several communicators: against the oracle for exact contents, and between backends for
 * any bits. `test/programs` runs 20,000 of the former in `npm run ok`.
 */
import { sim } from "twinccl/sim";
import {
  expectSame,
  lifeCycleCommands,
  programs,
  runLifeCycle,
  runOn,
  runProgram,
} from "twinccl/testing";
import { expect, test } from "vitest";
import { checkPrograms } from "../programs/law.ts";
import { holds, isRest } from "../support/seed.ts";

// The first of the programs of `test/programs`, which CI runs beside `test:rest`.
if (!isRest) {
  test("random programs equal the oracle", async () => {
    const file = "test/property/random-programs.property.test.ts -t oracle";
    expect((await checkPrograms(600, file)).programs).toBeGreaterThan(0);
  });
}

test("random programs of any bits leave the same bytes in every resume order", async () => {
  await holds(
    programs({ payload: "bits" }),
    async (program) => {
      const [a, b] = await runOn(
        { "seed 1": sim({ seed: 1 }), "seed 2": sim({ seed: 2 }) },
        program,
      );
      if (a === undefined || b === undefined) throw new Error("a run is missing");
      expectSame(a, b, "bytes");
    },
    200,
  );
});

test("random programs never write a lent buffer", async () => {
  await holds(
    programs({ maxElements: 9 }),
    async (program) => {
      await runProgram(sim({ strict: true }), program);
    },
    100,
  );
});

test("worlds follow their model through every life cycle", async () => {
  await holds(lifeCycleCommands(), (commands) => runLifeCycle(sim(), commands), 300);
});
