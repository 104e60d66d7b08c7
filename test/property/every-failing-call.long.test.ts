/**
 * One step of every kind of division, struck at each of its calls in turn: typed errors on all ranks, never a hang, and a step
 * afterwards in the same world that is right.
 */
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  ExpertParallel,
  Mesh,
  ParameterServer,
  ParameterSet,
  PipelineParallel,
  Random,
  ShardedParallel,
  type ShardingStage,
  sgd,
  TensorParallel,
} from "twinccl/parallel";
import { addTo, mlpStage, shardedTransformer } from "twinccl/parallel/models";
import { failAt, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { trainOnMesh } from "../support/mesh-run.ts";

interface Division {
  readonly name: string;
  readonly size: number;
  /** Those that are struck. */
  readonly ranks: readonly number[];
  /** Strikes every so many calls; 1 when left out. */
  readonly stride?: number;
  step(comm: Communicator): Promise<unknown>;
}

const rule = sgd({ learningRate: 0.1 });

const draw = (count: number, ...key: number[]): Float32Array => {
  const random = new Random(...key);
  return Float32Array.from({ length: count }, () => random.normal());
};

async function ofPipeline(comm: Communicator, data: number, stage?: ShardingStage) {
  const mesh = await Mesh.create(comm, { data, pipeline: comm.size / data });
  const line = mesh.comm("pipeline");
  const part = mlpStage(line, { sizes: [2, 3, 2, 1], seed: 1 });
  const pipeline = await PipelineParallel.create(line, part);
  const batches = [0, 1].map((at) => ({ input: draw(2, at), target: draw(1, at) }));
  if (stage === undefined) {
    await pipeline.backward(batches, addTo(part.parameters));
    return [...part.parameters].map(({ gradient }) => [...gradient]);
  }
  const options = { stage, rule, divided: { comm: line, copies: () => 1 } };
  const trainer = await ShardedParallel.create(mesh.comm("data"), part.parameters, options);
  const own = batches.slice(0, 2 - mesh.place("data"));
  const { gradientNorm } = await trainer.step([own], (all, ready, visit) =>
    pipeline.backward(all, ready, visit),
  );
  return gradientNorm;
}

const divisions: readonly Division[] = [
  {
    name: "tensor",
    size: 2,
    ranks: [0, 1],
    async step(comm) {
      const shape = { vocabulary: 3, context: 2, width: 2, heads: 2, blocks: 1 };
      const model = shardedTransformer(comm, shape);
      await model.backward({ tokens: [0, 1, 2], sequences: 1 }, addTo(model.parameters));
      const { output } = await new TensorParallel(comm, {
        step: () => ({ output: draw(3), shape: [3], loss: 1, gradientNorm: 1, samples: 1 }),
      }).step(0);
      return [output, [...model.parameters].map(({ gradient }) => [...gradient])];
    },
  },
  { name: "pipeline", size: 3, ranks: [0, 1, 2], step: (comm) => ofPipeline(comm, 1) },
  ...([1, 2, 3] as const).map((stage) => ({
    name: `ZeRO ${stage} with pipelines`,
    size: 4,
    ranks: [0, 3],
    step: (comm: Communicator) => ofPipeline(comm, 2, stage),
  })),
  {
    name: "experts",
    size: 2,
    ranks: [0, 1],
    async step(comm) {
      const experts = await ExpertParallel.create(comm, { experts: 3, width: 1, capacity: 2 });
      const routes = { choices: 1, experts: Int32Array.of(2, 0, 2), weights: draw(3) };
      const sent = await experts.dispatch(draw(3, comm.rank), routes);
      const back = await sent.combine(sent.rows);
      const { outputs } = await back.backward(back.output);
      return [[...back.output], [...(await sent.backward(outputs))]];
    },
  },
  {
    name: "parameter server",
    size: 2,
    ranks: [0, 1],
    async step(comm) {
      const model = new ParameterSet([{ name: "w", shape: [2], values: [1, 2] }]);
      const end = await ParameterServer.create(comm, model, { rule, staleness: 1 });
      if (end.isServer) return [await end.serve(), [...model.get("w").value]];
      for (let at = 0; at < 2; at++) await end.push(await end.pull(), { w: draw(2, at) });
      await end.leave();
      return [...model.get("w").value];
    },
  },
  {
    name: "a mesh of data, pipeline and tensor, ZeRO 3",
    size: 8,
    ranks: [5],
    stride: 5,
    step: (comm) => trainOnMesh(comm, { data: 2, pipeline: 2, tensor: 2, zero: 3 }, 1),
  },
];

describe.each(divisions)("$name", ({ size, ranks, stride = 1, step }) => {
  test.each(ranks)("rank %i fails at any of its calls", async (rank) => {
    const sound = await createWorld({ backend: sim(), size });
    const expected = await sound.run(step).finally(() => sound.close());
    let call = 0;
    for (; ; call += stride) {
      const world = await createWorld({ backend: sim({ faults: [failAt(rank, call)] }), size });
      try {
        const outcome = await world.run(step).catch((error: unknown) => error);
        if (Array.isArray(outcome)) {
          // It makes no more calls.
          expect(outcome).toEqual(expected);
          break;
        }
        expect(outcome, `call ${call}`).toBeInstanceOf(WorldError);
        const { failures } = outcome as WorldError;
        expect(failures.find((each) => each.rank === rank)?.error).toMatchObject({
          code: "ERR_COMM_FAULT",
        });
        for (const { error } of failures) expect(error, `call ${call}`).toBeInstanceOf(CommError);
        expect(await world.run(step), `after call ${call}`).toEqual(expected);
      } finally {
        await world.close();
      }
    }
    expect(call).toBeGreaterThan(5);
  });
});
