/** Lifetimes of sharded trainers and pipelines: one call at a time, disposal during a step, refusal afterwards. */
import type { Communicator } from "twinccl";
import {
  DataParallel,
  type MicroBatch,
  ParameterSet,
  PipelineParallel,
  type Ready,
  ShardedParallel,
  type ShardingStage,
  type State,
  sgd,
  type Visit,
} from "twinccl/parallel";
import { mlpStage } from "twinccl/parallel/models";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";
import { openBuffers } from "../../support/open-buffers.ts";
import { TcpJob } from "../../support/tcp-jobs.ts";

const rule = sgd({ learningRate: 1 });
const start = [1, 2, 3];

const sharded = (comm: Communicator, stage: ShardingStage): Promise<ShardedParallel> =>
  ShardedParallel.create(comm, new ParameterSet([{ name: "w", shape: [3], values: start }]), {
    stage,
    rule,
  });

/** A gradient of ones, and what is done in the middle of backward. */
const ones =
  (act: () => unknown = () => undefined) =>
  async (_: unknown, ready: Ready, visit: Visit): Promise<MicroBatch> => {
    await visit("w");
    await visit("w");
    await act();
    ready("w", Float32Array.of(1, 1, 1));
    return { loss: 0, samples: 1 };
  };

const valuesOf = ({ parameters }: ShardedParallel): number[] => [...parameters.get("w").value];

const closed = { code: "ERR_COMM_CLOSED" };

describe.each([1, 2, 3] as const)("a sharded trainer at stage %i", (stage) => {
  test("that is disposed during a step completes it, and refuses later ones", async () => {
    await inWorld(2, async (comm) => {
      const open = openBuffers(comm);
      const trainer = await sharded(comm, stage);
      const running = trainer.step(
        [1],
        ones(() => trainer[Symbol.dispose]()),
      );
      await expect(running).resolves.toMatchObject({ step: 1 });
      for (const call of [() => trainer.step([1], ones()), () => trainer.gatherValues()]) {
        const after = call();
        await expect(after).rejects.toMatchObject(closed);
        await expect(after).rejects.toThrow(/it was disposed\nhint: create another one$/);
      }
      trainer[Symbol.dispose]();
      expect(open()).toBe(0);
    });
  });

  test("refuses calls between the calls of a step, and continues", async () => {
    await inWorld(2, async (comm) => {
      const trainer = await sharded(comm, stage);
      const state = structuredClone(trainer.state());
      const between = async (): Promise<void> => {
        for (const act of [
          () => trainer.restore(state),
          () => trainer.reshard([state], 0, 1),
          () => trainer.releaseValues(),
        ]) {
          expect(act).toThrow(expect.objectContaining(closed));
          expect(act).toThrow(/: a step is still running\nhint: await it first$/);
        }
        for (const call of [() => trainer.step([1], ones()), () => trainer.gatherValues()]) {
          const refused = call();
          await expect(refused).rejects.toMatchObject(closed);
          await expect(refused).rejects.toThrow(/: a step is still running\nhint: await it first$/);
        }
      };
      await trainer.step([1], ones(between));
      await trainer.gatherValues();
      expect(valuesOf(trainer)).toEqual([0, 1, 2]);
      trainer.restore(state);
      await trainer.gatherValues();
      expect(valuesOf(trainer)).toEqual(start);
    });
  });

  test("refuses a step with invalid arguments first", async () => {
    await inWorld(2, async (comm) => {
      const trainer = await sharded(comm, stage);
      for (const [batches, backward, message] of [
        [undefined, ones(), /^ShardedParallel.step: microBatches: found undefined, needs an arr/],
        ["abc", ones(), /microBatches: found "abc", needs an array/],
        [[1], undefined, /backward: found undefined, needs a function/],
      ] as const) {
        const refused = trainer.step(batches as never, backward as never);
        await expect(refused).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
        await expect(refused).rejects.toThrow(message);
      }
      await expect(trainer.step([1], ones())).resolves.toMatchObject({ step: 1 });
    });
  });

  test.each([
    ["restored its part", (trainer: ShardedParallel) => trainer.restore(trainer.state())],
    ["released the values", (trainer: ShardedParallel) => trainer.releaseValues()],
  ])("gathers values and continues where one rank alone has %s", async (_, act) => {
    const results = await inWorld(2, async (comm) => {
      const trainer = await sharded(comm, stage);
      await trainer.gatherValues();
      if (comm.rank === 0) act(trainer);
      await trainer.gatherValues();
      const before = valuesOf(trainer);
      if (comm.rank === 1) act(trainer);
      await trainer.step([1], ones());
      await trainer.gatherValues();
      return [before, valuesOf(trainer)];
    });
    const each = [start, [0, 1, 2]];
    expect(results).toEqual([each, each]);
  });

  test("takes an earlier state, with lengths in place of shapes, and compares these", async () => {
    await inWorld(2, async (comm) => {
      const trainer = await sharded(comm, stage);
      const { values, tensors } = structuredClone(trainer.state());
      const { shapes, ...earlier } = values;
      expect(shapes).toEqual({ w: [3] });
      trainer.restore({ values: { ...earlier, lengths: { w: 3 } }, tensors });
      const other = { values: { ...earlier, lengths: { w: 4 } }, tensors };
      expect(() => trainer.restore(other)).toThrow(
        "restore: w: found a range of 4 elements, needs a range of [3]",
      );
      await trainer.gatherValues();
      expect(valuesOf(trainer)).toEqual(start);
    });
  });

  test("takes the steps of its own parameters, and refuses states after several numbers", async () => {
    await inWorld(2, async (comm) => {
      const trainer = await sharded(comm, stage);
      const { values } = trainer.state();
      const part = (step: number, name: string, each: readonly number[]): State => {
        const tensor = {
          dtype: "float32",
          shape: [each.length],
          data: Float32Array.from(each),
        } as const;
        return { values: { ...values, step }, tensors: { [`value/${name}`]: tensor } };
      };
      trainer.reshard(
        [part(5, "other", [7]), part(3, "w", [4, 5]), part(3, "w", [6])],
        comm.rank,
        3,
      );
      expect(trainer.state().values).toMatchObject({ step: 3 });
      const torn = [part(5, "w", [1, 2]), part(3, "w", [3])];
      expect(() => trainer.reshard(torn, comm.rank, 3)).toThrow(
        "restore: step: found 5 and 3, needs states after one number of steps",
      );
      await trainer.gatherValues();
      expect(valuesOf(trainer)).toEqual([4, 5, 6]);
    });
  });

  test("reports the reason if values could not be gathered", async () => {
    await inWorld(2, async (comm) => {
      const line = await comm.split({ color: 0 });
      const trainer = await sharded(line, stage);
      await line.close();
      trainer.restore(structuredClone(trainer.state()));
      await expect(trainer.gatherValues()).rejects.toMatchObject(closed);
      const after = trainer.step([1], ones());
      await expect(after).rejects.toThrow(/an earlier gatherValues failed: .*closed/);
    });
  });
});

describe("a pipeline", () => {
  const batchesOf = (x: number) => [
    { input: [x, 1], target: [0] },
    { input: [x, 2], target: [1] },
  ];
  const pipelineOf = (comm: Communicator) =>
    PipelineParallel.create(comm, mlpStage(comm, { sizes: [2, 3, 1] }));
  const lossOf = async (comm: Communicator, x: number): Promise<number> =>
    (await (await pipelineOf(comm)).backward(batchesOf(x), () => {})).loss;

  test("refuses a second step before the end of the first, with unchanged numbers of the first", async () => {
    await inWorld(2, async (comm) => {
      const expected = await lossOf(comm, 1);
      const pipeline = await pipelineOf(comm);
      const first = pipeline.backward(batchesOf(1), () => {});
      const second = pipeline.backward(batchesOf(5), () => {});
      await expect(second).rejects.toMatchObject(closed);
      await expect(second).rejects.toThrow(/a step is still running\nhint: await it first$/);
      expect((await first).loss).toBe(expected);
      expect((await pipeline.backward(batchesOf(5), () => {})).loss).toBe(await lossOf(comm, 5));
    });
  });

  test("that is disposed during a step completes it, and refuses later ones", async () => {
    await inWorld(2, async (comm) => {
      const expected = await lossOf(comm, 1);
      const open = openBuffers(comm);
      const pipeline = await pipelineOf(comm);
      const running = pipeline.backward(batchesOf(1), () => pipeline[Symbol.dispose]());
      expect((await running).loss).toBe(expected);
      const after = pipeline.backward(batchesOf(1), () => {});
      await expect(after).rejects.toMatchObject(closed);
      await expect(after).rejects.toThrow(/it was disposed\nhint: create another one$/);
      pipeline[Symbol.dispose]();
      expect(open()).toBe(0);
    });
  });
});

describe("where another process leaves in the middle of a step", () => {
  const [at, gradient] = [["a", "b"], Float32Array.of(1)];
  const modelOf = () => new ParameterSet(at.map((name) => ({ name, shape: [1] })));
  const left = new Error("left");

  /** The last rank leaves before its last gradients; the others' errors of the step, and of closing afterwards. */
  async function stepErrors(
    step: (comm: Communicator, leave: () => void) => Promise<unknown>,
  ): Promise<(readonly [step: unknown, close: unknown])[]> {
    const job = await TcpJob.open(3);
    const errors = await job.each(async (comm, rank) => {
      const leave = () => {
        if (rank === 2) throw left;
      };
      const failed = await step(comm, leave).catch((error: unknown) => error);
      return [failed, await comm.close().catch((error: unknown) => error)] as const;
    });
    await job.close();
    expect(errors[2]).toEqual([left, undefined]);
    return errors.slice(0, 2);
  }

  const remote = expect.objectContaining({ code: "ERR_COMM_REMOTE", ranks: [2] });

  test.each([2, 3] as const)(
    "sharded state of stage %i reports its first call, and closes in order",
    async (stage) => {
      const errors = await stepErrors(async (comm, leave) => {
        const options = { stage, rule, prefetch: false };
        const trainer = await ShardedParallel.create(comm, modelOf(), options);
        return trainer.step([1], async (_, ready, visit) => {
          for (const layer of [...at, "b"]) await visit(layer);
          leave();
          ready("b", gradient);
          await visit("a");
          ready("a", gradient);
          return { loss: 0, samples: 1 };
        });
      });
      expect(errors).toEqual([
        [remote, undefined],
        [remote, undefined],
      ]);
    },
  );

  test("buckets under way leave no failure behind that only close reports", async () => {
    const errors = await stepErrors(async (comm, leave) => {
      const trainer = await DataParallel.create(comm, modelOf(), { bucketBytes: 4 });
      return trainer.step([1], (_, ready) => {
        leave();
        for (const name of at.toReversed()) ready(name, gradient);
        return { loss: 0, samples: 1 };
      });
    });
    expect(errors).toEqual([
      [remote, undefined],
      [remote, undefined],
    ]);
  });
});
