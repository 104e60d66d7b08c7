/** Training options that were once accepted without their effect. */
import {
  type Communicator,
  createWorld,
  InvalidArgumentError,
  UnsupportedError,
  WorldError,
} from "twinccl";
import {
  DataParallel,
  ParameterServer,
  ParameterSet,
  ShardedParallel,
  sgd,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { openBuffers } from "../support/open-buffers.ts";
import { closeAll, joinAll, onAll } from "../unit/backends/nccl/job/joined.ts";

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

describe("with the schedule random, where ranks get calls ahead of others,", () => {
  const seeds = Array.from({ length: 20 }, (_, seed) => seed);
  const names = ["a", "b", "c"];
  const parameters = () =>
    new ParameterSet(names.map((name) => ({ name: `${name}.w`, shape: [2] })));

  /** Ranks that give a step up at the same place, dispose of the trainer and go on; gives the buffers that are left. */
  async function goOn(seed: number, giveUp: (comm: Communicator) => Promise<Disposable>) {
    const world = await createWorld({ backend: sim({ schedule: "random", seed }), size: 3 });
    const left = await world.run(async (comm) => {
      const open = openBuffers(comm);
      (await giveUp(comm))[Symbol.dispose]();
      const other = await DataParallel.create(comm, parameters());
      const { step } = await other.step([1], (_, ready) => {
        for (const name of names) ready(`${name}.w`, Float32Array.of(1, 2));
        return { loss: 0, samples: 1 };
      });
      expect(step).toBe(1);
      other[Symbol.dispose]();
      return open();
    });
    await world.close();
    return left;
  }

  test.each(["full", "bfloat16", { topK: 0.5 }] as const)(
    "a disposed trainer took the buckets of a cancelled step from other ranks: wire %j",
    async (wire) => {
      for (const seed of seeds) {
        const left = await goOn(seed, async (comm) => {
          const model = await DataParallel.create(comm, parameters(), { bucketBytes: 8, wire });
          const broken = model.step([1], (_, ready) => {
            ready("c.w", Float32Array.of(1, 2));
            throw new Error("out of tea");
          });
          await expect(broken).rejects.toThrow("out of tea");
          return model;
        });
        expect(left).toEqual([0, 0, 0]);
      }
    },
  );

  test.each([2, 3] as const)(
    "a disposed sharded trainer took the strips of a cancelled step from other ranks: stage %i",
    async (stage) => {
      for (const seed of seeds) {
        const left = await goOn(seed, async (comm) => {
          const model = await ShardedParallel.create(comm, parameters(), {
            stage,
            rule: sgd({ learningRate: 1 }),
          });
          const broken = model.step([1], async (_, ready, visit) => {
            await visit("a");
            await visit("b");
            // At stage 3 the values of the next layer are being gathered by now.
            if (stage === 3) throw new Error("out of tea");
            for (const name of ["c", "c"]) await visit(name);
            ready("c.w", Float32Array.of(1, 2));
            await visit("b");
            throw new Error("out of tea");
          });
          await expect(broken).rejects.toThrow("out of tea");
          return model;
        });
        expect(left).toEqual([0, 0, 0]);
      }
    },
  );
});
