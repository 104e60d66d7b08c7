/** What programs of training give by mistake: refused by name where it is given, and never taken for something else in silence. */
import type { Communicator } from "twinccl";
import {
  Checkpoints,
  crossEntropy,
  directoryFiles,
  memoryFiles,
  mse,
  Optimizer,
  ParameterSet,
  routeTopK,
  Sampler,
  sgd,
} from "twinccl/parallel";
import { mlp, transformer } from "twinccl/parallel/models";
import { expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";

// biome-ignore lint/suspicious/noExplicitAny: wrong values are the point
type Wrong = any;

const rule = sgd({ learningRate: 1 });
const two = () => Float32Array.of(1, 2);
const declared = (more: object) => new ParameterSet([{ name: "w", shape: [2], ...more }] as Wrong);
const model = () => declared({});
const perceptron = () => mlp({ sizes: [2, 1] });
const language = () =>
  transformer({ vocabulary: 2, context: 2, width: 2, heads: 1, blocks: 1 }) as Wrong;

/** By the field that is told; what the message begins with. */
const slips: readonly (readonly [string, string, () => unknown])[] = [
  [
    "declarations[0].value",
    "ParameterSet: declarations[0].value: it is not known here, needs one of values, name,",
    () => declared({ value: [1, 2] }),
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
  ["options", "transformer: options: found undefined", () => transformer(undefined as Wrong)],
  [
    "tokens",
    "transformer: tokens: found undefined, needs an array of tokens: a batch is { tokens, seq",
    () => language().loss({ sequences: 1 }),
  ],
  [
    "skip",
    'optimizer: "skip": found "w", needs an array of names',
    () => new Optimizer(model(), rule).step({ skip: "w" }),
  ],
  [
    "skip",
    'optimizer: "skip": found 7, needs an array of names',
    () => new Optimizer(model(), rule).step({ skip: 7 as Wrong }),
  ],
  [
    "options",
    "optimizer: options: found 7, needs",
    () => new Optimizer(model(), rule).step(7 as Wrong),
  ],
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
    "model",
    "save: model: it is not known here, needs one of shared, perRank",
    (comm) => new Checkpoints(comm, memoryFiles()).save(1, { model: model() } as Wrong),
  ],
  [
    "shared",
    'load: part "shared": found undefined, needs an object of parts by name',
    (comm) => new Checkpoints(comm, memoryFiles()).load({} as Wrong),
  ],
  [
    "m",
    'save: part "m": found an object without state(), needs a part with state, restore',
    (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { shared: { m: perceptron() as Wrong } }),
  ],
  [
    "m",
    'save: part "m": found an object without reshard(), needs a part with state, restore, reshard',
    (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { ...parts, perRank: { m: model() as Wrong } }),
  ],
  [
    "m",
    'load: part "m": found 7 without state(), needs',
    (comm) => new Checkpoints(comm, memoryFiles()).load({ ...parts, perRank: { m: 7 as Wrong } }),
  ],
  [
    "options",
    "load: options: found 3, needs one object",
    (comm) => new Checkpoints(comm, memoryFiles()).load(parts, 3 as Wrong),
  ],
];

test.each(checkpoints)("%s: %s", async (field, line, work) => {
  await inWorld(2, async (comm) => {
    const refused = (async () => work(comm))();
    await expect(refused).rejects.toMatchObject(ofFault(field, line));
    // Nothing was posted: the ranks are in step.
    await comm.barrier();
    expect(comm.stats().calls).toEqual({ barrier: 1 });
  });
});

test("options of a sampler that are left out as undefined are none", () => {
  const sharing = { samples: 5, batch: 2, rank: 0, size: 1 };
  const none = { seed: undefined, shuffle: undefined, partial: undefined } as Wrong;
  const [given, left] = [new Sampler({ ...sharing, ...none }), new Sampler(sharing)];
  expect([...given].map(({ indexes }) => [...indexes])).toEqual(
    [...left].map(({ indexes }) => [...indexes]),
  );
  expect(given.state()).toEqual(left.state());
});
