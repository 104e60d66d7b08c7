/** A transformer trained on a mesh of data, pipeline and tensor ranks with sharded state, on any backend; and on one rank. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  gatherTensor,
  Mesh,
  Optimizer,
  PipelineParallel,
  partOf,
  Random,
  ShardedParallel,
  type ShardingStage,
  sgd,
  type Tensor,
} from "twinccl/parallel";
import {
  addTo,
  shardedTransformer,
  type TokenBatch,
  transformer,
  transformerStage,
} from "twinccl/parallel/models";

/** Micro-batches of a step, which data parallel lines divide among them. */
const microBatches = 4;
/** The largest norm of a gradient; strikes in a part of the steps. */
export const largestNorm = 0.6;
// Heads and hidden units do not come out even over two ranks, nor do many lengths over shards.
const shape = {
  vocabulary: 7,
  context: 5,
  width: 6,
  heads: 3,
  blocks: 2,
  hidden: 7,
  seed: 3,
  dtype: "float64",
} as const;
const rule = () => sgd({ learningRate: 0.2, momentum: 0.9 });

/** The layout of the ranks, and what is sharded over the data axis. */
export interface MeshPlan {
  readonly data: number;
  readonly pipeline: number;
  readonly tensor: number;
  readonly zero: ShardingStage;
  /** Pipelines at stages 1 and 2 may add up their micro-batches themselves; `true` when left out. */
  readonly visits?: boolean;
}

/** The result of a run. */
export interface Trained {
  readonly losses: number[];
  readonly norms: number[];
  /** Whole tensors, by parameter; on ranks of a pipeline those of their stage. */
  readonly tensors: Record<string, Tensor>;
}

function batchesOf(step: number): TokenBatch[] {
  const random = new Random(11, step);
  return Array.from({ length: microBatches }, () => {
    // Each token is the one before, and three.
    const starts = [random.below(7), random.below(7)];
    const tokens = starts.flatMap((start) =>
      [0, 3, 6, 9, 12, 15].map((each) => (start + each) % 7),
    );
    return { tokens, sequences: 2 };
  });
}

/** One rank, no communicator, no trainer. */
export function trainedAlone(steps: number): Trained {
  const model = transformer(shape);
  const { parameters } = model;
  const optimizer = new Optimizer(parameters, rule());
  const [losses, norms]: [number[], number[]] = [[], []];
  for (let step = 0; step < steps; step++) {
    parameters.zeroGradients();
    const results = batchesOf(step).map((batch) => model.backward(batch, addTo(parameters)));
    const samples = results.reduce((sum, each) => sum + each.samples, 0);
    const gradients = parameters.gradients("float64");
    for (let at = 0; at < gradients.length; at++) gradients[at]! /= samples;
    const norm = Math.hypot(...gradients);
    if (norm > largestNorm) {
      for (let at = 0; at < gradients.length; at++) gradients[at]! *= largestNorm / norm;
    }
    optimizer.step();
    losses.push(results.reduce((sum, each) => sum + each.loss, 0) / samples);
    norms.push(norm);
  }
  const tensors = [...parameters].map((each): [string, Tensor] => [
    each.name,
    { shape: each.shape, data: each.value },
  ]);
  return { losses, norms, tensors: Object.fromEntries(tensors) };
}

/** The model's part of this rank, and how it is run on the micro-batches of a step. */
async function partOn(mesh: Mesh<"data" | "pipeline" | "tensor">, visits: boolean) {
  const tensor = mesh.comm("tensor");
  if (mesh.extent("pipeline") === 1) {
    const model = shardedTransformer(tensor, shape);
    const { parameters, divided, layerOf, axisOf } = model;
    const step = (trainer: ShardedParallel, batches: TokenBatch[]) =>
      trainer.step(batches, (each, ready, visit) => model.backward(each, ready, visit));
    return { parameters, divided, layerOf, axisOf, step, close: () => {} };
  }
  const line = mesh.comm("pipeline");
  const stage = transformerStage(line, shape, tensor);
  const pipeline = await PipelineParallel.create(line, stage, { dtype: "float64" });
  const comm = await mesh.across(["pipeline", "tensor"]);
  const step = (trainer: ShardedParallel, batches: TokenBatch[]) =>
    trainer.step([batches], (all, ready, visit) =>
      pipeline.backward(all, ready, visits ? visit : undefined),
    );
  const { parameters, copies, axisOf, layerOf } = stage;
  const close = () => pipeline[Symbol.dispose]();
  return { parameters, divided: { comm, copies }, layerOf, axisOf, step, close };
}

/** One rank's training. */
export async function trainOnMesh(
  comm: Communicator,
  { zero, visits = true, ...extents }: MeshPlan,
  steps: number,
): Promise<Trained> {
  const mesh = await Mesh.create(comm, extents);
  const { parameters, divided, layerOf, axisOf, step: run, close } = await partOn(mesh, visits);
  const options = { stage: zero, rule: rule(), maxGradientNorm: largestNorm, divided, layerOf };
  const trainer = await ShardedParallel.create(mesh.comm("data"), parameters, options);
  const { begin, end } = partOf(microBatches, { rank: mesh.place("data"), size: extents.data });
  const found: Trained = { losses: [], norms: [], tensors: {} };
  for (let step = 0; step < steps; step++) {
    const stats = await run(trainer, batchesOf(step).slice(begin, end));
    found.losses.push(stats.loss);
    found.norms.push(stats.gradientNorm);
  }
  await trainer.gatherValues();
  for (const { name, shape: own, value } of parameters) {
    const axis = axisOf(name);
    const part = { shape: own, data: value.slice() };
    found.tensors[name] =
      axis === undefined ? part : await gatherTensor(mesh.comm("tensor"), part, axis);
  }
  trainer[Symbol.dispose]();
  close();
  await mesh.close();
  return found;
}

/** The training of all ranks, in a world of its own. */
export async function runMesh(backend: Backend, plan: MeshPlan, steps: number): Promise<Trained[]> {
  const size = plan.data * plan.pipeline * plan.tensor;
  const world = await createWorld({ backend, size });
  try {
    return await world.run((comm) => trainOnMesh(comm, plan, steps));
  } finally {
    await world.close();
  }
}
