/**
 * Calls on GPUs that are made again and again with the same buffers, some so often that the native helper makes them,
 * leave what the simulation's calls leave, which are on new views of the same memory each time.
 */
import fc from "fast-check";
import { createWorld, type World } from "twinccl";
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";
import { afterAll, expect, test } from "vitest";
import { helper } from "../../src/backends/nccl/sys/helper.ts";
import { repeatedPrograms, run } from "../property/repeats.ts";
import { KeptOpen } from "../support/kept-open.ts";
import { holds } from "../support/seed.ts";
import { gpuSizes } from "./machine.ts";

const sizes = await gpuSizes();
const worlds = new KeptOpen<World>((size) => createWorld({ backend: nccl(), size }));
afterAll(() => worlds.close());

test("repeated calls with the same buffers have the simulation's results with new views", async () => {
  // Where there are none, it is said why.
  expect(await helper(), "the helper is there").toBeTypeOf("object");
  let [fine, all] = [0, 0];
  await holds(
    repeatedPrograms(fc.constantFrom(...sizes)),
    async (program) => {
      const found = await worlds.use(program.size, (world) => run(world, program, true));
      const simulated = await createWorld({ backend: sim(), size: program.size });
      const expected = await run(simulated, program, false);
      await simulated.close();
      expect(found.map(({ held }) => held)).toEqual(expected.map(({ held }) => held));
      const isFine = (ends: readonly string[]) => ends.map((end) => end === "done");
      expect(found.map(({ ends }) => isFine(ends))).toEqual(
        expected.map(({ ends }) => isFine(ends)),
      );
      const ends = found.flatMap((rank) => isFine(rank.ends));
      all += ends.length;
      fine += ends.filter((each) => each).length;
    },
    100,
  );
  expect(fine / all, "most calls are right").toBeGreaterThan(0.9);
}, 120_000);
