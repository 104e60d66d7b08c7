// Trains a small transformer on a mesh of data × pipeline × tensor ranks, its state sharded over the data axis (ZeRO 1, 2, 3),
// and compares with one rank that has everything. The last line is a checksum of all values after the last step: the same in
// every run, in every executor, and on all backends that follow the same plan.
//
//     npm run example:mesh                                              8 simulated ranks
//     node examples/mesh.mjs --backend nccl                             8 GPUs
//     node examples/mesh.mjs --backend nccl --mesh 2x1x2 --zero 3       4 GPUs
//     npx twinccl launch -n 8 examples/mesh.mjs --backend tcp          a process for each rank; also with nccl
//     node examples/mesh.mjs --help

import { createHash } from "node:crypto";
import { connect, createWorld } from "twinccl";
import {
  gatherTensor,
  Mesh,
  Optimizer,
  PipelineParallel,
  partOf,
  Random,
  ShardedParallel,
  sgd,
} from "twinccl/parallel";
import { addTo, transformer, transformerStage } from "twinccl/parallel/models";
import { oneOf, options, whole } from "../tools/options.mjs";

const backends = {
  sim: async () => (await import("twinccl/sim")).sim(),
  nccl: async () => (await import("twinccl/nccl")).nccl(),
  tcp: async () => (await import("twinccl/tcp")).tcp(),
};

const extents = {
  label: "DxPxT",
  needs: "three extents such as 2x1x2",
  read: (given) => /^([1-9]\d*)x([1-9]\d*)x([1-9]\d*)$/.exec(given)?.slice(1).map(Number),
};

const given = options({
  name: "mesh.mjs",
  about:
    "Trains a small transformer on a mesh of ranks, its state sharded over the data axis, and compares with one rank.",
  options: {
    backend: {
      is: oneOf(...Object.keys(backends)),
      default: "sim",
      help: "simulated ranks, a GPU for each rank, or launched processes without GPUs",
    },
    mesh: { is: extents, default: "2x2x2", help: "data × pipeline × tensor ranks" },
    zero: {
      is: oneOf("1", "2", "3"),
      default: "2",
      help: "sharded: the optimizer's state; gradients as well; values as well",
    },
    schedule: { is: oneOf("1f1b", "gpipe"), default: "1f1b", help: "of the pipeline" },
    steps: { is: whole(1), default: "50", help: "of training" },
  },
});
const { schedule, steps } = given;
const zero = Number(given.zero);
const [data, pipeline, tensor] = given.mesh;

const shape = { vocabulary: 11, context: 8, width: 12, heads: 3, blocks: 2, seed: 7 };
const model = { ...shape, dtype: "float64" };
const microBatches = 6;
const maxGradientNorm = 0.6;
const rule = sgd({ learningRate: 0.2, momentum: 0.9 });

/** The micro-batches of a step: sequences that go on by three. */
function batchesOf(step) {
  const random = new Random(1, step);
  return Array.from({ length: microBatches }, () => {
    const start = random.below(11);
    return { tokens: Array.from({ length: 9 }, (_, at) => (start + 3 * at) % 11), sequences: 1 };
  });
}

/** The training on one rank, without a communicator. */
function trainAlone() {
  const { parameters, backward } = transformer(model);
  const optimizer = new Optimizer(parameters, rule);
  const gradients = parameters.gradients("float64");
  const losses = [];
  for (let step = 0; step < steps; step++) {
    parameters.zeroGradients();
    const results = batchesOf(step).map((batch) => backward(batch, addTo(parameters)));
    const samples = results.reduce((sum, each) => sum + each.samples, 0);
    const norm = Math.hypot(...gradients) / samples;
    const factor = Math.min(1, maxGradientNorm / norm) / samples;
    for (let at = 0; at < gradients.length; at++) gradients[at] *= factor;
    optimizer.step();
    losses.push(results.reduce((sum, each) => sum + each.loss, 0) / samples);
  }
  return { losses, values: Object.fromEntries([...parameters].map((p) => [p.name, p.value])) };
}

/** The training on a rank of the mesh: its losses, the whole values of its stage, and the memory that they took. */
async function train(comm) {
  const mesh = await Mesh.create(comm, { data, pipeline, tensor });
  const [line, across] = [mesh.comm("pipeline"), mesh.comm("tensor")];
  const stage = transformerStage(line, model, across);
  const stages = await PipelineParallel.create(line, stage, {
    dtype: "float64",
    schedule,
  });
  const plane = await mesh.across(["pipeline", "tensor"]);
  const trainer = await ShardedParallel.create(mesh.comm("data"), stage.parameters, {
    stage: zero,
    rule,
    maxGradientNorm,
    layerOf: stage.layerOf,
    divided: { comm: plane, copies: stage.copies },
  });
  const own = partOf(microBatches, { rank: mesh.place("data"), size: data });
  const losses = [];
  for (let step = 0; step < steps; step++) {
    const batches = batchesOf(step).slice(own.begin, own.end);
    const stats = await trainer.step([batches], (all, ready, visit) =>
      stages.backward(all, ready, visit),
    );
    losses.push(stats.loss);
    if (comm.rank === 0 && stats.step % 10 === 0) {
      const { loss, gradientNorm } = stats;
      console.log(`step ${stats.step}: loss ${loss.toFixed(6)}, norm ${gradientNorm.toFixed(6)}`);
    }
  }
  const { memory } = trainer;
  await trainer.gatherValues();
  const values = {};
  for (const { name, shape, value } of stage.parameters) {
    const axis = stage.axisOf(name);
    const part = { shape, data: value };
    values[name] = axis === undefined ? value : (await gatherTensor(across, part, axis)).data;
  }
  await mesh.close();
  return { losses, values, memory };
}

function gap(found, expected) {
  const largest = Math.max(...Array.from(expected, Math.abs));
  return Math.max(...Array.from(expected, (each, at) => Math.abs(each - found[at]))) / largest;
}

/** Trains on a rank, compares it with `alone`, and prints what all ranks found. */
async function compare(comm, alone) {
  const { losses, values, memory } = await train(comm);
  const hash = createHash("sha256");
  for (const name of Object.keys(values).sort())
    hash.update(new Uint8Array(values[name].slice().buffer));
  const digest = comm.alloc("uint8", 32).copyFrom(hash.digest());
  const digests = comm.alloc("uint8", 32 * comm.size);
  await comm.allGather({ send: digest, recv: digests });
  // The gradient of a key's bias is rounding alone: the softmax cancels the bias.
  const names = Object.keys(values).filter((name) => !name.endsWith("key.bias"));
  const worst = comm.alloc("float64", 1);
  const gaps = names.map((name) => gap(values[name], alone.values[name]));
  worst.copyFrom(Float64Array.of(Math.max(gap(losses, alone.losses), ...gaps)));
  await comm.allReduce({ send: worst, op: "max" });
  const [difference] = await worst.toHost();
  if (comm.rank !== 0) return;
  const all = createHash("sha256").update(await digests.toHost());
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  console.log(
    `rank 0 held at most ${kib(memory.total.peakBytes)}: values ${kib(memory.values.peakBytes)}, ` +
      `gradients ${kib(memory.gradients.peakBytes)}, optimizer ${kib(memory.optimizer.peakBytes)}, ` +
      `calls under way ${kib(memory.exchange.peakBytes)}`,
  );
  console.log(`loss ${losses[0].toFixed(4)} -> ${losses.at(-1).toFixed(4)}`);
  console.log(`largest difference to one rank: ${difference.toExponential(1)}`);
  console.log(`values ${all.digest("hex").slice(0, 16)}`);
}

const alone = trainAlone();
const backend = await backends[given.backend]();
// A launcher's process is one rank; without a launcher all ranks live in this process.
if (process.env.TWINCCL_RANK === undefined) {
  const world = await createWorld({ backend, size: data * pipeline * tensor });
  await world.run((comm) => compare(comm, alone)).finally(() => world.close());
} else {
  const comm = await connect({ backend });
  await compare(comm, alone);
  await comm.close();
}
