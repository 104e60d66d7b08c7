/** Options of trainers that once were taken and did nothing. */
import { createWorld, InvalidArgumentError, WorldError } from "twinccl";
import { DataParallel, ParameterSet } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

test.each([
  ["full", {}],
  ["topK", { wire: { topK: 0.5 } }],
])("a wireScale on a wire that rounds nothing was ignored in silence: %s", async (_, options) => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const create = (wireScale: number): Promise<unknown> =>
    world.run((comm) => {
      const model = new ParameterSet([{ name: "w", shape: [2] }]);
      return DataParallel.create(comm, model, { ...options, wireScale });
    });
  // 1 is what is taken when it is left out.
  await create(1);
  const error = (await create(4).catch((thrown: unknown) => thrown)) as WorldError;
  await world.close();
  expect(error).toBeInstanceOf(WorldError);
  for (const { error: each } of error.failures) {
    expect(each).toBeInstanceOf(InvalidArgumentError);
    expect((each as InvalidArgumentError).field).toBe("wireScale");
    expect((each as Error).message).toMatch(/found 4, needs a wire of "float16" or "bfloat16"/);
  }
});
