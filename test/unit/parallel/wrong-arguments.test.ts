/** Wrong arguments of training programs are refused by name, and never silently taken for others. */
import type { Communicator } from "twinccl";
import {
  Checkpoints,
  crossEntropy,
  DataParallel,
  directoryFiles,
  ExpertParallel,
  Mesh,
  measureBubble,
  memoryFiles,
  mse,
  Optimizer,
  ParameterServer,
  ParameterSet,
  PipelineParallel,
  partOf,
  Random,
  routeTopK,
  Sampler,
  ShardedParallel,
  sgd,
  splitTensor,
  TensorParallel,
  warmUp,
} from "twinccl/parallel";
import {
  addTo,
  columnLinear,
  type Layer,
  layerNorm,
  linear,
  mixtureOfExperts,
  mlp,
  mlpStage,
  replicated,
  residual,
  rowLinear,
  selfAttention,
  sequence,
  sharded as shardedLayer,
  shardedResidual,
  shardedSequence,
  shardedTransformer,
  tanh,
  transformer,
  transformerStage,
  visitedSequence,
} from "twinccl/parallel/models";
import { describe, expect, test } from "vitest";
import { embed } from "../../../src/parallel/layers/embedding.ts";
import { inWorld } from "../../support/in-world.ts";

// biome-ignore lint/suspicious/noExplicitAny: wrong values are the point
type Wrong = any;

const rule = sgd({ learningRate: 1 });
const two = () => Float32Array.of(1, 2);
const declared = (more: object) => new ParameterSet([{ name: "w", shape: [2], ...more }] as Wrong);
const model = () => declared({});
const scored = { logits: two(), targets: [0], classes: 2 };
const perceptron = () => mlp({ sizes: [2, 1] });
const shape = { vocabulary: 2, context: 2, width: 2, heads: 1, blocks: 1 };
const language = () => transformer(shape) as Wrong;
const dense = { weight: { name: "w", value: two() }, inputs: 1, outputs: 2 };
const one = { sequences: 1, length: 1 };
const divided = (what: "model" | "layer" | "column" | "row") => {
  const none = undefined as Wrong;
  if (what === "model") return shardedTransformer(none, shape);
  if (what === "layer") return shardedLayer(none, linear(dense));
  return (what === "row" ? rowLinear : columnLinear)(none, dense);
};

/** By the field of the error; the beginning of its message. */
const slips: readonly (readonly [string, string, () => unknown])[] = [
  [
    "declarations[0].value",
    "ParameterSet: declarations[0].value: it is not known here, needs one of values, name,",
    () => declared({ value: [1, 2] }),
  ],
  [
    "declarations",
    "ParameterSet: declarations: found 1099511627776 elements of float32, needs no more than",
    () => new ParameterSet([{ name: "w", shape: [2 ** 20, 2 ** 20] }]),
  ],
  [
    "declarations[1]",
    "ParameterSet: declarations[1]: found null, needs one object",
    () => new ParameterSet([{ name: "w", shape: [2] }, null as Wrong]),
  ],
  [
    "w",
    'parameter 0 "w": values[1]: found "b", needs a number',
    () => declared({ values: [1, "b"] }),
  ],
  [
    "w",
    'parameter 0 "w": values[0]: found 1n, needs a number',
    () => declared({ values: BigInt64Array.of(1n, 2n) }),
  ],
  [
    "reduction",
    'crossEntropy: reduction: found "none", needs "mean" or "sum"',
    () => crossEntropy({ logits: two(), targets: [0], classes: 2, reduction: "none" as Wrong }),
  ],
  [
    "targets",
    "crossEntropy: targets: found undefined, needs an array of numbers",
    () => crossEntropy({ logits: two(), classes: 2 } as Wrong),
  ],
  ["options", "crossEntropy: options: found 0, needs one object", () => crossEntropy(0 as never)],
  [
    "reduction",
    'mse: reduction: found "Mean", needs "mean" or "sum"',
    () => mse({ prediction: two(), target: two(), reduction: "Mean" as Wrong }),
  ],
  [
    "target",
    "mse: target: found 3, needs an array of numbers",
    () => mse({ prediction: two(), target: 3 as Wrong }),
  ],
  [
    "logits",
    "routeTopK: logits: found an array, needs a Float32Array or Float64Array",
    () => routeTopK([1, 2] as Wrong, { experts: 2 }),
  ],
  ["options", "routeTopK: options: found undefined", () => routeTopK(two(), undefined as Wrong)],
  [
    "input",
    "mlp: input: found undefined, needs an array of numbers: a batch is { input, target }",
    () => perceptron().loss({ x: [1, 2], y: [1] } as Wrong),
  ],
  [
    "target",
    "mse: target: found undefined, needs an array of numbers",
    () => perceptron().loss({ input: [1, 2] } as Wrong),
  ],
  ["options", "mlp: options: found undefined, needs one object", () => mlp(undefined as Wrong)],
  ["sizes", "mlp: sizes: found 0 of them, needs at least 2", () => mlp({} as Wrong)],
  ...([2 ** 20, 2 ** 40] as const).map(
    (width) =>
      [
        "declarations",
        `ParameterSet: declarations: found ${width * width} elements of float32, needs no more`,
        () => mlp({ sizes: [width, width] }),
      ] as const,
  ),
  [
    "declarations",
    "ParameterSet: declarations: found 2199023255552 elements of float32, needs no more than",
    () => transformer({ ...shape, vocabulary: 2 ** 40 }),
  ],
  ["options", "transformer: options: found undefined", () => transformer(undefined as Wrong)],
  [
    "dtype",
    'transformer: dtype: found "float16", needs "float32" or "float64"',
    () => transformer({ ...shape, dtype: "float16" as Wrong }),
  ],
  [
    "seed",
    "transformer: seed: found 0.5, needs an integer",
    () => transformer({ ...shape, seed: 0.5 }),
  ],
  [
    "dtype",
    'mlp: dtype: found "float16", needs "float32" or "float64"',
    () => mlp({ sizes: [2, 1], dtype: "float16" as Wrong }),
  ],
  ["seed", 'mlp: seed: found "7", needs an int', () => mlp({ sizes: [2, 1], seed: "7" as Wrong })],
  [
    "tokens",
    "transformer: tokens: found undefined, needs an array of tokens: a batch is { tokens, seq",
    () => language().loss({ sequences: 1 }),
  ],
  [
    "skip",
    'optimizer: skip: found "w", needs an array of names',
    () => new Optimizer(model(), rule).step({ skip: "w" }),
  ],
  [
    "skip",
    "optimizer: skip: found 7, needs an array of names",
    () => new Optimizer(model(), rule).step({ skip: 7 as Wrong }),
  ],
  [
    "options",
    "optimizer: options: found 7, needs",
    () => new Optimizer(model(), rule).step(7 as Wrong),
  ],
  [
    "skip",
    "optimizer: skip: found null, needs an array of names",
    () => new Optimizer(model(), rule).step({ skip: null as Wrong }),
  ],
  [
    "parameters",
    'optimizer: parameters: found "w", needs { name, dtype, shape, value, gradient } of each',
    () => new Optimizer(["w"] as Wrong, rule),
  ],
  [
    "parameters",
    "optimizer: parameters: found null, needs {",
    () => new Optimizer([null] as Wrong, rule),
  ],
  ...(["schedule", "slots", "name"] as const).map(
    (part) =>
      [
        "w",
        `optimizer: w: found a rule with ${part} undefined, needs an update rule, such as`,
        () => new Optimizer(model(), { ...rule, [part]: undefined } as Wrong),
      ] as const,
  ),
  [
    "w",
    'optimizer: w: found a rule with a slot "mean/fast", which has a "/", needs an update rule',
    () => new Optimizer(model(), { ...rule, slots: ["mean/fast"] }),
  ],
  ...(["values", "gradients"] as const).map(
    (of) =>
      [
        "dtype",
        'parameters: dtype: found "float16", needs "float32" or "float64"',
        () => model()[of]("float16" as Wrong),
      ] as const,
  ),
  [
    "start",
    'warmUp: start: found "0.5", needs a number from 0 to 1',
    () => warmUp({ steps: 2, start: "0.5" as Wrong, after: 1 }),
  ],
  [
    "after",
    "warmUp: after: found undefined, needs a number of at least 0",
    () => warmUp({ steps: 2 } as Wrong),
  ],
  [
    "gradient",
    "crossEntropy: gradient: found an Int32Array, needs a Float32Array or Float64Array",
    () => crossEntropy({ ...scored, gradient: new Int32Array(2) as Wrong }),
  ],
  [
    "weights",
    "crossEntropy: weights: found null, needs an array of numbers",
    () => crossEntropy({ ...scored, weights: null as Wrong }),
  ],
  [
    "gradient",
    "mse: gradient: found null, needs a Float32Array or Float64Array",
    () => mse({ prediction: two(), target: two(), gradient: null as Wrong }),
  ],
  [
    "w",
    'parameter 0 "w": values: found null, needs 2 elements, the product of [2]',
    () => declared({ values: null }),
  ],
  [
    "gradient",
    "routeTopK: gradient: found undefined, needs 1 elements, a weight each",
    () => routeTopK(two(), { experts: 2 }).backward(undefined as Wrong),
  ],
  [
    "tokens",
    "transformer: tokens: found undefined, needs an array of tokens",
    () => language().logits(undefined),
  ],
  ["size", "partOf: size: found undefined, needs an", () => partOf(4, undefined as Wrong)],
  ["size", "partOf: size: found undefined", () => mlpStage(undefined as Wrong, { sizes: [1, 1] })],
  ["size", "partOf: size: found undefined", () => transformerStage(undefined as Wrong, shape)],
  ["comm", "shardedTransformer: comm: found undefined, needs a comm", () => divided("model")],
  ["comm", "sharded: comm: found undefined, needs a communicator", () => divided("layer")],
  ["comm", "columnLinear: comm: found undefined, needs a communicator", () => divided("column")],
  ["comm", "rowLinear: comm: found undefined, needs a communicator", () => divided("row")],
  [
    "data",
    "splitTensor: data: found an array, needs a Float32Array or Float64Array",
    () => splitTensor({ shape: [2], data: [1, 2] as Wrong }, 0, { rank: 0, size: 1 }),
  ],
  [
    "shape",
    "splitTensor: shape: found undefined, needs an array of extents",
    () => splitTensor(undefined as Wrong, 0, { rank: 0, size: 1 }),
  ],
  [
    "events",
    "measureBubble: events: found an object, needs an array of them: trace.toChrome().traceEvents",
    () => measureBubble({ traceEvents: [] } as Wrong),
  ],
  [
    "weight",
    "linear: weight: found undefined, needs { name, val",
    () => linear(undefined as Wrong),
  ],
  ["weight", "linear: weight: found a name of undefined", () => linear({ weight: {} } as Wrong)],
  [
    "bias",
    "linear: bias: found 7, needs { name, value }",
    () => linear({ ...dense, bias: 7 as Wrong }),
  ],
  [
    "inputs",
    "linear: inputs: found undefined, needs an integer of at least 0",
    () => linear({ weight: dense.weight } as Wrong),
  ],
  [
    "w",
    "linear: w: found undefined, needs 2 elements with 1 rows",
    () => linear({ ...dense, weight: { name: "w" } as Wrong }).forward(two(), one),
  ],
  [
    "input",
    "linear: input: found undefined, needs 1 elements",
    () => linear(dense).forward(undefined as Wrong, one),
  ],
  [
    "extent",
    "forward: extent: found undefined, needs { sequences, length }",
    () => linear(dense).forward(two(), undefined as Wrong),
  ],
  [
    "extent",
    "forward: extent: found 1 of undefined, needs",
    () => linear(dense).forward(two(), { sequences: 1 } as Wrong),
  ],
  [
    "weight",
    "layerNorm: weight: found null, needs { name",
    () => layerNorm({ weight: null } as Wrong),
  ],
  ["weight", "layerNorm: weight: found undefined", () => layerNorm(undefined as Wrong)],
  [
    "w",
    "layerNorm: w: found undefined, needs an array",
    () => layerNorm({ weight: { name: "w" }, bias: dense.weight } as Wrong),
  ],
  [
    "query",
    "selfAttention: query: found undefined without forward()",
    () => selfAttention(undefined as Wrong),
  ],
  [
    "heads",
    "selfAttention: heads: found undefined, needs an integer",
    () => selfAttention({ query: tanh(), key: tanh(), value: tanh(), output: tanh() } as Wrong),
  ],
  [
    "input",
    "activation: input: found undefined, needs an array",
    () => tanh().forward(undefined as Wrong, one),
  ],
  [
    "layers",
    "sequence: layers: found undefined, needs an array of layers",
    () => sequence(undefined as Wrong),
  ],
  [
    "layers[1]",
    "sequence: layers[1]: found a function without forward()",
    () => sequence([tanh(), (() => 0) as Wrong]),
  ],
  [
    "layer",
    "residual: layer: found undefined without forward()",
    () => residual(undefined as Wrong),
  ],
  [
    "layer",
    "replicated: layer: found undefined without forward()",
    () => replicated(undefined as Wrong),
  ],
  ["layers", "shardedSequence: layers: found 7, needs an array", () => shardedSequence(7 as Wrong)],
  [
    "layers",
    "visitedSequence: layers: found undefined, needs layers with",
    () => visitedSequence(undefined as Wrong, async () => {}),
  ],
  [
    "layer",
    "shardedResidual: layer: found undefined without",
    () => shardedResidual(undefined as Wrong),
  ],
  [
    "router",
    "mixtureOfExperts: router: found undefined without forward()",
    () => mixtureOfExperts({} as Wrong),
  ],
  [
    "own",
    "mixtureOfExperts: own: found undefined, needs an array",
    () => mixtureOfExperts({ router: tanh() } as Wrong),
  ],
  [
    "parallel",
    "mixtureOfExperts: parallel: found undefined without dispatch()",
    () => mixtureOfExperts({ router: tanh(), own: [] } as Wrong),
  ],
  ["events", "measureBubble: events: found an array, needs", () => measureBubble([null as Wrong])],
  ["directory", 'directoryFiles: directory: found "", needs a path', () => directoryFiles("")],
  [
    "directory",
    "directoryFiles: directory: found an object, needs a path\nhint: such as",
    () => directoryFiles(new URL("file:///run-7") as Wrong),
  ],
];

const ofFault = (field: string, line: string) => ({
  code: "ERR_COMM_ARG",
  field,
  message: expect.stringContaining(line),
});

test.each(slips)("%s: %s", (field, line, work) => {
  expect(work).toThrow(expect.objectContaining(ofFault(field, line)));
});

const parts = { shared: {} };
const checkpoints: readonly (readonly [string, string, (comm: Communicator) => unknown])[] = [
  [
    "files",
    'Checkpoints: files: found "run-7" without write(), needs a CheckpointFiles\nhint: pass dir',
    (comm) => new Checkpoints(comm, "run-7" as Wrong),
  ],
  [
    "files",
    "Checkpoints: files: found undefined without write(), needs",
    (comm) => new Checkpoints(comm, undefined as Wrong),
  ],
  [
    "options",
    "save: options: found undefined, needs one object",
    (comm) => new Checkpoints(comm, memoryFiles()).save(1, undefined as Wrong),
  ],
  [
    "shared",
    "save: shared: found undefined, needs an object of parts by name, or {} for none",
    (comm) => new Checkpoints(comm, memoryFiles()).save(1, { model: model() } as Wrong),
  ],
  [
    "shared",
    "load: shared: found undefined, needs an object of parts by name, or {} for none",
    (comm) => new Checkpoints(comm, memoryFiles()).load({} as Wrong),
  ],
  [
    "shared",
    "save: shared: found a Map, needs an object of parts by name",
    (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { shared: new Map([["m", model()]]) } as Wrong),
  ],
  [
    "perRank",
    "load: perRank: found a Map, needs an object of parts by name",
    (comm) => new Checkpoints(comm, memoryFiles()).load({ ...parts, perRank: new Map() as Wrong }),
  ],
  [
    "m",
    "save: m: found an object without state(), needs a part with state, restore",
    (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { shared: { m: perceptron() as Wrong } }),
  ],
  [
    "m",
    "save: m: found an object without reshard(), needs a part with state, restore, reshard",
    (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { ...parts, perRank: { m: model() as Wrong } }),
  ],
  [
    "m",
    "load: m: found 7 without state(), needs",
    (comm) => new Checkpoints(comm, memoryFiles()).load({ ...parts, perRank: { m: 7 as Wrong } }),
  ],
  [
    "options",
    "load: options: found 3, needs one object",
    (comm) => new Checkpoints(comm, memoryFiles()).load(parts, 3 as Wrong),
  ],
];

/** Objects made of communicators, parameter sets and other things with functions. */
const handles: readonly (readonly [string, string, (comm: Communicator) => unknown])[] = [
  [
    "parameters",
    "DataParallel.create: parameters: found an object, needs a ParameterSet\nhint: pass the model's par",
    (comm) => DataParallel.create(comm, perceptron() as Wrong),
  ],
  [
    "comm",
    "DataParallel.create: comm: found an object, needs a communicator\nhint: world.run hands",
    (comm) => DataParallel.create(model() as Wrong, comm as Wrong),
  ],
  ["comm", "ShardedParallel.create: comm: found undefined", () => sharded(undefined as Wrong)],
  [
    "parameters",
    "ShardedParallel.create: parameters: found undefined, needs a ParameterSet\nhint: new Par",
    (comm) => ShardedParallel.create(comm, undefined as Wrong, { stage: 1, rule }),
  ],
  [
    "layerOf",
    'ShardedParallel: layerOf("w"): found undefined, needs the name of a layer',
    (comm) => sharded(comm, { layerOf: () => undefined as Wrong }),
  ],
  [
    "parameters",
    "ParameterServer.create: parameters: found an object, needs a ParameterSet",
    (comm) => ParameterServer.create(comm, perceptron() as Wrong, { rule, staleness: 1 }),
  ],
  [
    "rule",
    'ShardedParallel: rule of "w": found a rule with schedule undefined, needs an update rule',
    (comm) => sharded(comm, { rule: { ...rule, schedule: undefined } }),
  ],
  [
    "divided",
    "DataParallel: divided: found an object without copies(), needs an object with copies",
    (comm) => DataParallel.create(comm, model(), { divided: comm as Wrong }),
  ],
  [
    "divided.comm",
    "DataParallel: divided.comm: found undefined, needs a communicator",
    (comm) => DataParallel.create(comm, model(), { divided: { copies: () => 1 } as Wrong }),
  ],
  [
    "divided",
    'DataParallel: divided.copies("w"): found 0, needs a number of ranks from 1 to 2',
    (comm) => DataParallel.create(comm, model(), { divided: { comm, copies: () => 0 } }),
  ],
  [
    "divided",
    'ShardedParallel: divided.copies("w"): found undefined, needs a number of ranks',
    (comm) => sharded(comm, { divided: { comm, copies: () => undefined as Wrong } }),
  ],
  ["comm", "Mesh.create: comm: found 2, needs a communicator", () => Mesh.create(2 as Wrong, {})],
  [
    "stage",
    "PipelineParallel.create: stage: found an object without inputLength(), needs an object with",
    (comm) => PipelineParallel.create(comm, perceptron() as Wrong),
  ],
  [
    "work.forwardMs",
    "PipelineParallel.create: work.forwardMs: it is not known here, needs one of forwardNs,",
    (comm) => PipelineParallel.create(comm, stage, { work: { forwardMs: 1 } as Wrong }),
  ],
  [
    "shard",
    "TensorParallel: shard: found a function without step(), needs an object with step",
    (comm) => new TensorParallel(comm, (() => {}) as Wrong),
  ],
  [
    "comm",
    "TensorParallel: comm: found undefined",
    () => new TensorParallel(undefined as Wrong, stage as Wrong),
  ],
  [
    "comm",
    "ExpertParallel.create: comm: found undefined",
    () => ExpertParallel.create(undefined as Wrong, { experts: 1, width: 1 }),
  ],
  [
    "experts",
    "ExpertParallel.create: experts: found 1099511627776, needs an integer in 1..1048576",
    (comm) => ExpertParallel.create(comm, { experts: 2 ** 40, width: 1 }),
  ],
  ["layer", "sharded: layer: found undefined", (comm) => shardedLayer(comm, undefined as Wrong)],
  ["bias", "sharded: bias: found 7", (comm) => shardedLayer(comm, tanh(), 7 as Wrong)],
  ["weight", "columnLinear: weight: found und", (comm) => columnLinear(comm, undefined as Wrong)],
  ["weight", "rowLinear: weight: found undefined", (comm) => rowLinear(comm, undefined as Wrong)],
  [
    "comm",
    "Checkpoints: comm: found undefined",
    () => new Checkpoints(undefined as Wrong, memoryFiles()),
  ],
  [
    "parameters",
    "optimizer: parameters: found an object, needs a ParameterSet or several of its parameters\nhint: pass",
    () => new Optimizer(perceptron() as Wrong, rule),
  ],
  [
    "w",
    "optimizer: w: found values of undefined, needs float32 with 2 elements",
    () => new Optimizer([{ name: "w", dtype: "float32", shape: [2] } as Wrong], rule),
  ],
];

const stage = { inputLength: () => 1, forward: () => ({}) } as Wrong;
const sharded = (comm: Communicator, more: object = {}) =>
  ShardedParallel.create(comm, model(), { stage: 1, rule, ...more });

test.each([...checkpoints, ...handles])("%s: %s", async (field, line, work) => {
  await inWorld(2, async (comm) => {
    const refused = (async () => work(comm))();
    await expect(refused).rejects.toMatchObject(ofFault(field, line));
    // Nothing was posted: the ranks are in step.
    await comm.barrier();
    expect(comm.stats().calls).toEqual({ barrier: 1 });
  });
});

test("options of a sampler that are undefined count as left out", () => {
  const sharing = { samples: 5, batch: 2, rank: 0, size: 1 };
  const none = { seed: undefined, shuffle: undefined, partial: undefined } as Wrong;
  const [given, left] = [new Sampler({ ...sharing, ...none }), new Sampler(sharing)];
  expect([...given].map(({ indexes }) => [...indexes])).toEqual(
    [...left].map(({ indexes }) => [...indexes]),
  );
  expect(given.state()).toEqual(left.state());
});

test("a pipeline refuses a step of invalid arguments before any call", async () => {
  await inWorld(2, async (comm) => {
    const pipeline = await PipelineParallel.create(comm, mlpStage(comm, { sizes: [2, 2, 1] }));
    const batch = { input: [1, 2], target: [1] };
    for (const [batches, take, field, visit] of [
      [batch, () => {}, "microBatches"],
      [undefined, () => {}, "microBatches"],
      [[batch], undefined, "take"],
      [[batch], () => {}, "visit", async () => {}],
      [[batch], () => {}, "visit", null],
    ] as const) {
      const refused = pipeline.backward(batches as Wrong, take as Wrong, visit as Wrong);
      await expect(refused).rejects.toMatchObject({ code: "ERR_COMM_ARG", field });
    }
    await expect(pipeline.backward([batch], () => {})).resolves.toMatchObject({ samples: 1 });
  });
});

test.each([
  ["PipelineParallel: w: found a gradient that is undefined, needs a Float32Array", undefined],
  ["PipelineParallel: w: found a gradient that is an array, needs a Float32Array", [1, 2]],
])("%s", async (line, gradient) => {
  await inWorld(1, async (comm) => {
    const totals = { loss: 0, samples: 1 };
    const pipeline = await PipelineParallel.create(comm, {
      inputLength: () => 1,
      forward: () => ({ totals, backward: (_: Wrong, take: Wrong) => take("w", gradient) }),
    });
    const refused = pipeline.backward([0, 1], () => {});
    await expect(refused).rejects.toMatchObject(ofFault("w", line));
  });
});

test("axes that are not an array are refused by a mesh", async () => {
  await inWorld(2, async (comm) => {
    const mesh = await Mesh.create(comm, { data: 2 });
    for (const axes of [undefined, "data"]) {
      const refused = mesh.across(axes as Wrong);
      await expect(refused).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "axes" });
    }
    await mesh.close();
  });
});

test("invalid tokens, routes and outputs are refused by experts", async () => {
  await inWorld(1, async (comm) => {
    const experts = await ExpertParallel.create(comm, { experts: 2, width: 1 });
    const routes = { choices: 1, experts: Int32Array.of(0), weights: Float32Array.of(1) };
    const token = Float32Array.of(1);
    const sent = await experts.dispatch(token, routes);
    for (const [field, found, call] of [
      ["tokens", "undefined", () => experts.dispatch(undefined as Wrong, routes)],
      ["choices", "undefined", () => experts.dispatch(token, undefined as Wrong)],
      [
        "weights",
        "undefined",
        () => experts.dispatch(token, { ...routes, weights: undefined } as Wrong),
      ],
      ["arrays", "undefined", () => sent.combine(undefined as Wrong)],
      ["expert 0", "undefined", () => sent.combine([undefined, undefined] as Wrong)],
      ["expert 0", "an array", () => sent.backward([[1], []] as Wrong)],
    ] as const) {
      await expect(call()).rejects.toMatchObject(ofFault(field, `${field}: found ${found}, needs`));
    }
  });
});

describe("an invalid state", () => {
  const sharing = { samples: 3, batch: 1, rank: 0, size: 1 };
  const states: readonly (readonly [Wrong, string, string])[] = [
    [undefined, "state", "found undefined, needs { values, tensors }, as state() gives it"],
    [{}, "values", "found undefined, needs those that state() gave"],
    [{ values: {} }, "tensors", "found undefined, needs those that state() gave"],
    [
      { values: {}, tensors: new Map() },
      "tensors",
      "found an object, needs those that state() gave",
    ],
    [
      { values: {}, tensors: { w: { dtype: "float32" } } },
      'tensor "w"',
      "found an object, needs { dtype, shape, data }",
    ],
    [
      { values: {}, tensors: { w: { dtype: "float32", shape: [2], data: new Float64Array(2) } } },
      'tensor "w"',
      "found a Float64Array, needs the Float32Array of float32",
    ],
  ];

  test.each(states)("%j", async (state, field, line) => {
    await inWorld(1, async (comm) => {
      const server = await ParameterServer.create(comm, model(), { rule, staleness: 1 });
      for (const part of [
        model(),
        new Optimizer(model(), rule),
        new Random(7),
        new Sampler(sharing),
        await DataParallel.create(comm, model()),
        await sharded(comm),
        server,
      ]) {
        const before = JSON.stringify(part.state());
        const calls = [() => part.restore(state)];
        // A rank without a state keeps its initial random numbers.
        if ("reshard" in part && !(part instanceof Random)) {
          calls.push(() => part.reshard([state], 0, 1));
        }
        for (const call of calls) {
          expect(call).toThrow(expect.objectContaining(ofFault(field, `${field}: ${line}`)));
        }
        expect(JSON.stringify(part.state())).toBe(before);
      }
      await server.serve();
    });
  });
});

test("wrong states, ranks and sizes of a reshard are refused", async () => {
  await inWorld(1, async (comm) => {
    const server = await ParameterServer.create(comm, model(), { rule, staleness: 1 });
    const trainer = await DataParallel.create(comm, model());
    for (const part of [new Random(7), trainer, await sharded(comm), server]) {
      for (const wrong of [undefined, null, 7, {}]) {
        expect(() => part.reshard(wrong as Wrong, 0, 1)).toThrow(
          expect.objectContaining(ofFault("states", "reshard: states: found")),
        );
      }
    }
    const states = [trainer.state()];
    for (const [rank, size, field] of [
      [0, undefined, "size"],
      [0, 0, "size"],
      [undefined, 1, "rank"],
      [1, 1, "rank"],
    ] as const) {
      expect(() => trainer.reshard(states, rank as Wrong, size as Wrong)).toThrow(
        expect.objectContaining(ofFault(field, `reshard: ${field}: found`)),
      );
    }
    expect(() => new Random(7).reshard([], -1)).toThrow(
      expect.objectContaining(ofFault("rank", "reshard: rank: found -1")),
    );
    await server.serve();
  });
});

describe("rows that do not fit are refused, not filled with NaN or shifted:", () => {
  const weights = (name: string, length: number) => ({ name, value: new Float64Array(length) });
  const extent = { sequences: 2, length: 1 };
  const dense = (name: string, outputs: number) =>
    linear({ weight: weights(name, 4 * outputs), inputs: 4, outputs });

  test.each([
    ["b", 4, 2, 8, "2 elements, needs 4 with 2 rows of 4"],
    ["input", 4, 4, 6, "6 elements, needs 8 with 2 rows of 4"],
  ])("a layer norm's %s", (field, weight, bias, input, fault) => {
    const norm = layerNorm({ weight: weights("w", weight), bias: weights("b", bias) });
    const line = `layerNorm: ${field}: found ${fault}`;
    const forward = () => norm.forward(new Float64Array(input), extent);
    expect(forward).toThrow(expect.objectContaining(ofFault(field, line)));
  });

  test.each(["query", "key", "value"])("the %s of an attention", (field) => {
    const layers = { query: dense("q", 4), key: dense("k", 4), value: dense("v", 4) };
    const parts = { ...layers, [field]: dense("other", 8), output: dense("o", 4) };
    const attention = selfAttention({ ...parts, heads: 2, headWidth: 2 });
    const of = "2 rows, 2 heads and a head width of 2";
    const line = `selfAttention: ${field}: found 16 elements, needs 8 with ${of}`;
    const forward = () => attention.forward(new Float64Array(8), extent);
    expect(forward).toThrow(expect.objectContaining(ofFault(field, line)));
  });

  test.each([
    ["linear", dense("w", 3), "needs 6 with 2 rows, 4 inputs and 3 outputs"],
    ["layerNorm", layerNorm({ weight: weights("w", 4), bias: weights("b", 4) }), "needs 8 with 2"],
    ["activation", tanh(), "needs 8 with the input"],
  ])("a gradient of a layer: %s", (name, layer, fault) => {
    const pass = layer.forward(new Float64Array(8), extent);
    const taken: string[] = [];
    const backward = () => pass.backward(new Float64Array(7), (each) => taken.push(each));
    const line = `${name}: gradient: found 7 elements, ${fault}`;
    expect(backward).toThrow(expect.objectContaining(ofFault("gradient", line)));
    expect(taken).toEqual([]);
  });

  test("a gradient of an attention, by the layer behind it", () => {
    const shortened: Layer = {
      forward: (output) => ({ output, backward: (gradient) => gradient.slice(1) }),
    };
    const layers = { query: dense("q", 4), key: dense("k", 4), value: dense("v", 4) };
    const attention = selfAttention({ ...layers, output: shortened, heads: 2, headWidth: 2 });
    const pass = attention.forward(new Float64Array(8), extent);
    const line = "selfAttention: gradient: found 7 elements, needs 8 with 2 rows, 2 heads and a";
    expect(() => pass.backward(new Float64Array(8), () => undefined)).toThrow(
      expect.objectContaining(ofFault("gradient", line)),
    );
  });

  test("a gradient of an embedding", () => {
    const parts = { token: weights("t", 12), position: weights("p", 4), width: 4 };
    const pass = embed(parts, [0, 2], extent);
    const taken: string[] = [];
    const backward = () => pass.backward(new Float64Array(7), (name) => taken.push(name));
    const line = "embed: gradient: found 7 elements, needs 8 with 2 rows of 4";
    expect(backward).toThrow(expect.objectContaining(ofFault("gradient", line)));
    expect(taken).toEqual([]);
  });

  test("an output beside the input of a residual", async () => {
    await inWorld(1, async (comm) => {
      const line = "residual: rows: found 12 elements, needs 8 with those of the input";
      const forward = () => residual(dense("w", 6)).forward(new Float64Array(8), extent);
      expect(forward).toThrow(expect.objectContaining(ofFault("rows", line)));
      const divided = shardedResidual(shardedLayer(comm, dense("w", 6)));
      const running = divided.forward(new Float64Array(8), extent);
      await expect(running).rejects.toMatchObject(ofFault("rows", line));
    });
  });

  test.each([1, 3])("an output under a bias of %i", async (length) => {
    await inWorld(2, async (comm) => {
      const bias = weights("b", length);
      const parts = { weight: weights("w", 8), bias, inputs: 4, outputs: 2 };
      const line = `sharded: output: found 4 elements, needs ${2 * length} with 2 rows as wide as "b"`;
      const forward = rowLinear(comm, parts).forward(new Float64Array(8), extent);
      await expect(forward).rejects.toMatchObject(ofFault("output", line));
    });
  });
});

test("a linear layer of other lengths is refused, not filled with NaN", () => {
  const weights = (name: string, length: number) => ({ name, value: new Float64Array(length) });
  const run = (weight: number, bias: number, input: number) =>
    linear({
      weight: weights("w", weight),
      bias: weights("b", bias),
      inputs: 2,
      outputs: 3,
    }).forward(new Float64Array(input), { sequences: 2, length: 1 }).output.length;
  expect(run(6, 3, 4)).toBe(6);
  const of = "with 2 rows, 2 inputs and 3 outputs";
  for (const [field, found, needed, work] of [
    ["w", 5, 6, () => run(5, 3, 4)],
    ["b", 2, 3, () => run(6, 2, 4)],
    ["input", 6, 4, () => run(6, 3, 6)],
  ] as const) {
    const line = `linear: ${field}: found ${found} elements, needs ${needed} ${of}`;
    expect(work).toThrow(expect.objectContaining(ofFault(field, line)));
  }
  const add = () => addTo(model())("w", Float32Array.of(1));
  expect(add).toThrow(
    expect.objectContaining(ofFault("w", "found a gradient of 1 elements, needs exactly 2")),
  );
});
