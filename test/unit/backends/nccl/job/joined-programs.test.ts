/** Random programs by ranks that are processes of their own, on fake GPUs: the results are the simulation's. */
import fc from "fast-check";
import { sim } from "twinccl/sim";
import { expectSame, gatherRun, programs, runProgram, runProgramAs } from "twinccl/testing";
import { expect, test } from "vitest";
import { takenByNccl } from "../../../../support/claimed-programs.ts";
import { fakeGpus } from "../../../../support/fake-gpus/index.ts";
import { replay, runsOf } from "../../../../support/seed.ts";
import { expectClean } from "../gpus.ts";
import { closeAll, joinAll, onAll } from "./joined.ts";

test.each([
  [2, "off"],
  [3, "off"],
  [3, "always"],
] as const)("%i ranks, compareCalls %s", async (size, compareCalls) => {
  const gpus = fakeGpus();
  const ranks = await joinAll(size, compareCalls, gpus);
  const drawn = programs({ payload: "exact", sizes: fc.constant(size) });
  for (const each of fc.sample(drawn, { seed: replay.seed, numRuns: runsOf(25) })) {
    const program = takenByNccl(each);
    const held = await onAll(ranks, ({ comm }) => runProgramAs(comm, program));
    expectSame(gatherRun(program, held, "joined"), await runProgram(sim(), program));
  }
  await closeAll(ranks);
  expectClean(gpus);
});

test("a program of another size is refused", async () => {
  const ranks = await joinAll(2);
  const [program] = fc.sample(programs({ sizes: fc.constant(3) }), 1);
  await expect(runProgramAs(ranks[0]!.comm, program!)).rejects.toThrow(
    "runProgramAs: program: found a program of 3 ranks, needs one of 2",
  );
  await closeAll(ranks);
});
