/** Training that once was taken and did not do what was asked for. */
import { createWorld, InvalidArgumentError, UnsupportedError, WorldError } from "twinccl";
import { DataParallel, ParameterServer, ParameterSet, sgd } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { closeAll, joinAll, onAll } from "../unit/nccl-backend/joined.ts";

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

test("a parameter server with a process for each rank waited for ever for the worker that it listened to first", async () => {
  const joined = await joinAll(3);
  const errors = await onAll(joined, async ({ comm }) => {
    const model = new ParameterSet([{ name: "w", shape: [2] }]);
    const rule = sgd({ learningRate: 1 });
    return ParameterServer.create(comm, model, { rule, staleness: 4 }).catch(
      (error: unknown) => error,
    );
  });
  for (const [rank, error] of errors.entries()) {
    expect(error).toBeInstanceOf(UnsupportedError);
    const { message, hint } = error as UnsupportedError;
    expect(error).toMatchObject({
      rank,
      size: 3,
      ranks: [0, 1, 2].filter((each) => each !== rank),
    });
    expect(message).toMatch(
      /ParameterServer.create: .*found 1 of 3 ranks in this process, needs all/,
    );
    expect(hint).toMatch(/one process.*createWorld.*DataParallel/);
  }
  await closeAll(joined);
});
