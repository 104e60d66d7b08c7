/**
 * Calls that are made again and again with the same buffers, some with other counts, offsets, roots and operators, leave what
 * they leave with new views of the same memory each time: nothing of a call is remembered that another one should not have.
 */
import fc from "fast-check";
import { type Backend, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { holds } from "../support/seed.ts";
import { type Left, type Repeated, repeatedPrograms, run } from "./repeats.ts";

/** In a world of its own. */
async function left(backend: Backend, program: Repeated, keeps: boolean): Promise<readonly Left[]> {
  const world = await createWorld({ backend, size: program.size });
  try {
    return await run(world, program, keeps);
  } finally {
    await world.close();
  }
}

describe.each([
  ["the simulation", () => sim()],
  ["fake GPUs", () => fakeGpus().backend()],
] as const)("on %s", (_, open) => {
  test("calls with the same buffers have the results of calls with new views", async () => {
    let fine = 0;
    let all = 0;
    await holds(
      repeatedPrograms(fc.integer({ min: 1, max: 4 })),
      async (program) => {
        const repeated = await left(open(), program, true);
        expect(repeated).toEqual(await left(open(), program, false));
        const ends = repeated.flatMap((rank) => rank.ends);
        all += ends.length;
        fine += ends.filter((end) => end === "done").length;
      },
      300,
    );
    expect(fine / all, "most calls are right").toBeGreaterThan(0.9);
  });
});
