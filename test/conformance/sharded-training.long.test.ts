/** Sharded training has the same bits on fakes of NCCL as on the simulation, and leaves nothing behind. */
import { type Backend, createWorld } from "twinccl";
import { adamW, ParameterSet, ShardedParallel, type ShardingStage } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { SmallNetwork } from "../support/small-network.ts";
import { layerOf, visitingBackward } from "../support/visiting-network.ts";

const network = new SmallNetwork([5, 7, 3], "float32");

async function trained(backend: Backend, stage: ShardingStage): Promise<number[][]> {
  const world = await createWorld({ backend, size: 3 });
  try {
    return await world.run(async (comm) => {
      const model = new ParameterSet(network.declarations(1));
      const rule = adamW({ learningRate: 0.02 });
      const options = { stage, rule, layerOf, maxGradientNorm: 0.5 };
      const trainer = await ShardedParallel.create(comm, model, options);
      const backward = visitingBackward(network, model);
      for (let step = 0; step < 20; step++) {
        // Rank r brings r micro-batches.
        const batches = Array.from({ length: comm.rank }, (_, at) => network.samples(3, step + at));
        // Multiples of 2^-10 add up exactly in any order: that of the fakes is another than that of the simulation.
        await trainer.step(batches, (each, ready, visit) =>
          backward(
            each,
            (name, g) =>
              ready(
                name,
                g.map((v) => Math.round(v * 1024) / 1024),
              ),
            visit,
          ),
        );
      }
      await trainer.gatherValues();
      trainer[Symbol.dispose]();
      return [...model].flatMap(({ value }) => [...value]);
    });
  } finally {
    await world.close();
  }
}

test.each([1, 2, 3] as const)("at stage %i", async (stage) => {
  const gpus = fakeGpus();
  const expected = await trained(sim(), stage);
  expect(expected[0]).toEqual(expected[2]);
  expect(await trained(gpus.backend(), stage)).toEqual(expected);
  expect(gpus.machine.complaints).toEqual([]);
  expect(gpus.machine.leaks()).toEqual([]);
});
