/**
 * A save that training goes on beside. Its calls have no order with those of a step, because files take their own time on each
 * rank. On a communicator of a plain split the ranks would wait for each other; on one with a stream of its own they do not.
 */
import { createWorld } from "twinccl";
import { Checkpoints, DataParallel, memoryFiles, Optimizer, sgd } from "twinccl/parallel";
import { mlp } from "twinccl/parallel/models";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

const batch = { input: [1, -1], target: [0.5] };
const [savedAt, until] = [3, 8];

async function trained(seed: number, files: ReturnType<typeof memoryFiles>, save: boolean) {
  const world = await createWorld({ backend: sim({ seed, schedule: "random" }), size: 3 });
  try {
    return await world.run(async (comm) => {
      const model = mlp({ sizes: [2, 3, 1], seed: 7 });
      const trainer = await DataParallel.create(comm, model.parameters, { bucketBytes: 16 });
      const optimizer = new Optimizer(model.parameters, sgd({ learningRate: 0.1, momentum: 0.9 }));
      const parts = { shared: { model: model.parameters, optimizer }, perRank: { trainer } };
      const beside = await comm.split({ color: 0, stream: "own" });
      const checkpoints = new Checkpoints(beside, files);
      const from = save ? 0 : ((await checkpoints.load(parts))?.step ?? 0);
      let saving: Promise<unknown> | undefined;
      for (let step = from; step < until; step++) {
        if (save && step === savedAt) saving = checkpoints.save(step, parts);
        await trainer.step([batch], (each, ready) => model.backward(each, ready));
        optimizer.step();
      }
      await saving;
      return [from, ...model.parameters.values("float32")];
    });
  } finally {
    await world.close();
  }
}

test.each([0, 1, 2, 3])("has the state of its call, and ends, with seed %i", async (seed) => {
  const files = memoryFiles();
  const [whole] = await trained(seed, files, true);
  const [resumed] = await trained(seed + 1, files, false);
  expect(resumed).toEqual([savedAt, ...whole!.slice(1)]);
});
