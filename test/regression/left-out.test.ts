/** An argument or option that is given as `undefined` is left out: the result is that without it. */
import fc from "fast-check";
import { type Communicator, createWorld } from "twinccl";
import { type Algorithm, buildProgram, catalogue, layoutOf, predict } from "twinccl/algorithms";
import { bench } from "twinccl/bench";
import { nccl } from "twinccl/nccl";
import {
  adamW,
  Checkpoints,
  cosine,
  crossEntropy,
  DataParallel,
  ExpertParallel,
  lion,
  memoryFiles,
  mse,
  Optimizer,
  ParameterServer,
  ParameterSet,
  PipelineParallel,
  partOf,
  routeTopK,
  Sampler,
  ShardedParallel,
  sgd,
  warmUp,
} from "twinccl/parallel";
import { mlp, mlpStage, transformer } from "twinccl/parallel/models";
import { type SimOptions, sim, Trace, wasm } from "twinccl/sim";
import {
  checkProperty,
  countsMatrix,
  countsUpTo,
  dtypesOf,
  lifeCycleCommands,
  type Program,
  programs,
  reduceOps,
  runProgram,
  worldSizes,
} from "twinccl/testing";
import { webgpu } from "twinccl/webgpu";
import { describe, expect, test } from "vitest";
import { inWorld } from "../support/in-world.ts";

/** Gives fields that are all `undefined`, or none of them. */
type Rest = <const Name extends string>(...names: Name[]) => Record<Name, undefined>;

const undefineds: Rest = (...names) =>
  Object.fromEntries(names.map((name) => [name, undefined])) as never;
const nothing: Rest = () => ({}) as never;

const shared = ["signal", "timeoutMs"] as const;
const data = (comm: Communicator, length = 4): Float32Array =>
  Float32Array.from({ length }, (_, at) => comm.rank * 10 + at);

const calls: Readonly<Record<string, (comm: Communicator, rest: Rest) => PromiseLike<unknown>>> = {
  allReduce: (comm, rest) =>
    comm.allReduce({ send: data(comm), op: "sum", ...rest("recv", ...shared) }),
  reduce: (comm, rest) =>
    comm.reduce({ send: data(comm), op: "sum", root: 1, ...rest("recv", ...shared) }),
  broadcastOfSend: (comm, rest) =>
    comm.rank === 0
      ? comm.broadcast({ send: data(comm), root: 0, ...rest("recv", ...shared) })
      : comm.broadcast({ recv: data(comm), root: 0, ...rest("send", ...shared) }),
  allGather: (comm, rest) =>
    comm.allGather({ send: data(comm), recv: data(comm, 8), ...rest(...shared) }),
  allGatherv: (comm, rest) =>
    comm.allGatherv({
      send: data(comm),
      recv: data(comm, 8),
      recvCounts: [4, 4],
      ...rest("recvOffsets", ...shared),
    }),
  allToAllv: async (comm, rest) => {
    const { recv, ...counts } = await comm.allToAllv({
      send: data(comm),
      sendCounts: [1, 3],
      ...rest("recv", "sendOffsets", "recvCounts", "recvOffsets", ...shared),
    });
    return { ...counts, recv: await recv.toHost() };
  },
  gather: (comm, rest) =>
    comm.rank === 0
      ? comm.gather({
          send: data(comm),
          recv: data(comm, 8),
          root: 0,
          ...rest("recvCounts", "recvOffsets", ...shared),
        })
      : comm.gather({
          send: data(comm),
          root: 0,
          ...rest("recv", "recvCounts", "recvOffsets", ...shared),
        }),
  scatter: (comm, rest) =>
    comm.rank === 0
      ? comm.scatter({
          send: data(comm, 8),
          recv: data(comm),
          root: 0,
          ...rest("sendCounts", "sendOffsets", ...shared),
        })
      : comm.scatter({
          recv: data(comm),
          root: 0,
          ...rest("send", "sendCounts", "sendOffsets", ...shared),
        }),
  sendRecv: (comm, rest) =>
    comm.sendRecv({
      send: data(comm),
      recv: data(comm),
      to: 1 - comm.rank,
      from: 1 - comm.rank,
      ...rest(...shared),
    }),
  barrier: (comm, rest) => comm.barrier(rest(...shared)),
  split: async (comm, rest) => {
    const { name, rank, size } = await comm.split({ color: 0, ...rest("key", ...shared) });
    return { name, rank, size };
  },
  alloc: async (comm, rest) => comm.alloc("int8", 2, rest("symmetric")).toHost(),
  explain: async (comm, rest) => {
    const question = { collective: "broadcast", count: 9 } as const;
    const { claim, steps } = comm.explain({
      ...question,
      ...rest("dtype", "op", "root", "counts", "symmetric"),
    });
    return { claim, steps };
  },
};

const model = (rest: Rest): ParameterSet =>
  new ParameterSet([{ name: "a.w", shape: [3], ...rest("dtype", "values") }]);
const shape = { vocabulary: 5, context: 4, width: 4, heads: 2, blocks: 1 };
const rule = sgd({ learningRate: 0.1 });
const parallelNames = ["unused", "maxGradientNorm", "nonFinite", "root", "divided"] as const;

/** The effect of a trainer's step on the model; the clock makes times equal. */
async function trained(
  trainer: Pick<DataParallel, "parameters" | "step">,
  rest: Rest,
): Promise<unknown> {
  const stats = await trainer.step([1], (_batch, ready) => {
    ready("a.w", Float32Array.of(1, 2, 3));
    return { loss: 1, samples: 2, ...rest("weight") };
  });
  return [stats, ...[...trainer.parameters].map(({ gradient }) => [...gradient])];
}

const files = memoryFiles();

const training: Readonly<Record<string, (comm: Communicator, rest: Rest) => Promise<unknown>>> = {
  DataParallel: async (comm, rest) => {
    const options = { now: () => 0, ...rest("bucketBytes", "wire", "wireScale", ...parallelNames) };
    return trained(await DataParallel.create(comm, model(rest), options), rest);
  },
  ExpertParallel: async (comm, rest) => {
    const settings = { experts: 2, width: 2, ...rest("capacity", "dtype") };
    const experts = await ExpertParallel.create(comm, settings);
    const options = { experts: 2, ...rest("choices", "softmax") };
    const routes = routeTopK(Float32Array.of(1, 2, 4, 3), options);
    return (await experts.dispatch(Float32Array.of(1, 2, 3, 4), routes)).load;
  },
  ShardedParallel: async (comm, rest) => {
    const more = rest("layerOf", "prefetch", ...parallelNames);
    const options = { stage: 1, rule, now: () => 0, ...more } as const;
    const trainer = await ShardedParallel.create(comm, model(rest), options);
    const step = await trainer.step([1], (_batch, ready) => {
      ready("a.w", Float32Array.of(1, 2, 3));
      return { loss: 1, samples: 2, ...rest("weight") };
    });
    return [step, [...trainer.parameters.get("a.w").value]];
  },
  ParameterServer: async (comm, rest) => {
    const options = { rule, staleness: 1, ...rest("server", "mode", "onAccepted") };
    const server = await ParameterServer.create(comm, model(rest), options);
    return [server.isServer, server.state().values];
  },
  PipelineParallel: async (comm, rest) => {
    const stage = mlpStage(comm, { sizes: [2, 3, 2], ...rest("loss", "classWeights", "seed") });
    const options = rest("schedule", "dtype", "work");
    return (await PipelineParallel.create(comm, stage, options)).schedule;
  },
  Checkpoints: async (comm, rest) => {
    const checkpoints = new Checkpoints(comm, files, rest("keep"));
    const parts = { shared: { model: model(rest) }, ...rest("perRank") };
    await checkpoints.save(3, parts);
    return (await checkpoints.load(parts, rest("save")))?.step;
  },
};

const single: Readonly<Record<string, (rest: Rest) => unknown>> = {
  sgd: (rest) =>
    updated(sgd({ learningRate: 0.1, ...rest("momentum", "dampening", "nesterov") }), rest),
  adamW: (rest) =>
    updated(adamW({ learningRate: 0.1, ...rest("betas", "epsilon", "weightDecay") }), rest),
  lion: (rest) => updated(lion({ learningRate: 0.1, ...rest("betas", "weightDecay") }), rest),
  warmUp: (rest) => warmUp({ steps: 4, after: 1, ...rest("start") })(2),
  cosine: (rest) => cosine({ steps: 4, peak: 1, ...rest("minimum") })(2),
  mse: (rest) =>
    mse({
      prediction: Float32Array.of(1, 2),
      target: Float32Array.of(2, 4),
      ...rest("gradient", "reduction"),
    }),
  crossEntropy: (rest) =>
    crossEntropy({
      logits: Float32Array.of(1, 2),
      classes: 2,
      targets: [1],
      ...rest("weights", "gradient", "reduction"),
    }),
  mlp: (rest) => values(mlp({ sizes: [2, 3], ...rest("loss", "classWeights", "dtype", "seed") })),
  transformer: (rest) => values(transformer({ ...shape, ...rest("hidden", "dtype", "seed") })),
  Sampler: (rest) =>
    new Sampler({
      samples: 9,
      batch: 2,
      rank: 0,
      size: 1,
      ...rest("seed", "shuffle", "partial"),
    }).next(),
  partOf: (rest) => partOf(6, { rank: 1, size: 2, ...rest("unit") }),
};

function updated(rule: ReturnType<typeof sgd>, rest: Rest): unknown {
  const parameters = model(rest);
  parameters.get("a.w").gradient.set([1, 2, 3]);
  new Optimizer(parameters, rule).step(rest("skip"));
  return [...parameters.get("a.w").value];
}

const values = ({ parameters }: { readonly parameters: ParameterSet }): unknown =>
  [...parameters].map(({ name, value }) => [name, ...value]);

/** Drawn cases, which are a matter of the seed alone. */
const drawn: Readonly<Record<string, (rest: Rest) => fc.Arbitrary<unknown>>> = {
  worldSizes: (rest) => worldSizes(rest("min", "max")),
  countsUpTo: (rest) => countsUpTo(rest("min", "max")),
  countsMatrix: (rest) => countsMatrix(2, rest("min", "max")),
  dtypesOf: (rest) => dtypesOf(rest("kinds")),
  reduceOps: (rest) => reduceOps("int8", rest("payload")),
  lifeCycleCommands: (rest) =>
    lifeCycleCommands(rest("maxRanks", "maxCommands")).map((commands) => [...commands].map(String)),
  programs: (rest) =>
    programs({
      ...rest("payload", "symmetric", "scalarsDiffer", "sizes"),
      ...rest("maxSteps", "maxSplits", "maxElements", "kinds", "steps"),
    }),
};

const { linear, ring } = catalogue.allReduce;
const link = { latencyPs: 1000, gigabytesPerSecond: 1 };
const question = { collective: "allReduce", ranks: 4, count: 8, bytesPerElement: 4, link } as const;

/** The linear all-reduce, with what it has beside its steps left out. */
const plain = (rest: Rest): Algorithm => {
  const { name, summary, source, credits, chunksPerBlock, cost, write } = linear;
  const needed = { name, summary, source, credits, chunksPerBlock, cost, write };
  return { ...needed, ...rest("channels", "scratchChunks", "order", "symmetry") };
};

/** Algorithms, backends and measurements. */
const others: Readonly<Record<string, (rest: Rest) => unknown>> = {
  predict: (rest) =>
    predict({
      ...{ ...question, algorithm: ring },
      ...rest("root", "overheadPs", "topology", "hopLatencyPs", "credits", "onProgress"),
    }),
  layoutOf: (rest) =>
    layoutOf(buildProgram("allReduce", ring, 4, -1), { count: 8, ...rest("blocks") }),
  buildProgram: (rest) => buildProgram("allReduce", plain(rest), 4, -1),
  sim: (rest) =>
    traced({
      ...rest("seed", "like", "topology", "executor", "faults", "strict", "phantom"),
      ...{
        plan: undefined,
        algorithms: rest("allReduce"),
        link: rest("latencyNs", "gigabytesPerSecond"),
      },
    }),
  plan: (rest) =>
    traced({
      like: "nccl-2.28",
      plan: rest(
        ...["algorithm", "protocol", "channels", "minChannels", "maxChannels", "rings"],
        ...["buffSize", "llBuffSize", "ll128BuffSize"],
      ),
    }),
  wasm: (rest) => traced({ executor: wasm(rest("threads")) }),
  webgpu: (rest) =>
    webgpu(rest("device", "powerPreference", "dawn", "keepDevice", "slabBytes", "limits")).name,
  nccl: (rest) =>
    nccl({
      ...rest("devices", "stream", "streams", "staging", "ncclLibrary", "cudartLibrary"),
      ...rest("timeoutMs", "plan", "readPlan", "compareCalls", "nvls"),
    }).name,
  createWorld: async (rest) => {
    const names = ["name", "onStall", "stallMs", "stall", "callSites"] as const;
    const options = { backend: sim(), size: 2, ...rest(...names) };
    const world = await createWorld(options);
    await world.run((comm) => comm.barrier());
    const next = await world.rebuild(rest("without"));
    await next.close();
    return [world.name, next.size];
  },
  bench: async (rest) => {
    const { results } = await bench({
      ...{ backend: sim(), collective: "allReduce", ranks: 2 },
      sizes: { min: 8, max: 16, step: 8, ...rest("factor") },
      ...{ iterations: 1, ...rest("dtypes", "ops", "roots", "warmup", "check", "seed", "spread") },
      ...rest("mode", "latency", "symmetric", "connected", "onOpen", "onResult", "onProgress"),
    });
    return results.map(({ type, redop, root }) => [type, redop, root]);
  },
  runProgram: async (rest) => {
    const [program] = fc.sample(programs(), { seed: 1, numRuns: 1 }) as [Program];
    const run = await runProgram(sim(), program, rest("label", "pace", "onStall", "stallMs"));
    return [run.backend, run.outcomes.length];
  },
  checkProperty: async (rest) => {
    const seen: number[] = [];
    const options = { runs: 3, ...rest("command", "seed", "path", "commands") };
    await checkProperty(fc.nat(), (value) => void seen.push(value), options);
    return seen;
  },
};

/** The trace of one all-reduce. */
async function traced(options: SimOptions): Promise<string> {
  const trace = new Trace();
  const call = (comm: Communicator) => comm.allReduce({ send: data(comm), op: "sum" });
  await inWorld(2, call, sim({ ...options, trace }));
  return trace.toText();
}

describe("a field that is undefined is left out", () => {
  test.each(Object.entries(calls))("of %s", async (_name, call) => {
    const withAll = await inWorld(2, (comm) => call(comm, undefineds));
    expect(withAll).toEqual(await inWorld(2, (comm) => call(comm, nothing)));
  });

  test.each(Object.entries(training))("of %s", async (_name, call) => {
    const withAll = await inWorld(2, (comm) => call(comm, undefineds));
    expect(withAll).toEqual(await inWorld(2, (comm) => call(comm, nothing)));
  });

  test.each(Object.entries({ ...single, ...others }))("of %s", async (_name, call) => {
    expect(await call(undefineds)).toEqual(await call(nothing));
  });

  test.each(Object.entries(drawn))("of %s", (_name, arbitrary) => {
    const sampled = (rest: Rest): unknown => fc.sample(arbitrary(rest), { seed: 3, numRuns: 20 });
    expect(sampled(undefineds)).toEqual(sampled(nothing));
  });
});
