/** Names that no option and no argument has: refused by name, on every way into the library, before anything happens. */
import fc from "fast-check";
import {
  type CallOptions,
  type Communicator,
  connect,
  createWorld,
  InvalidArgumentError,
  type Question,
  type RebuildOptions,
} from "twinccl";
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
  routeTopK,
  Sampler,
  ShardedParallel,
  type StepOptions,
  sgd,
  warmUp,
} from "twinccl/parallel";
import {
  mixtureOfExperts,
  mlp,
  tanh,
  transformer,
  transformerStage,
} from "twinccl/parallel/models";
import { sim, wasm } from "twinccl/sim";
import { checkProperty, programs, runProgram } from "twinccl/testing";
import { webgpu } from "twinccl/webgpu";
import { describe, expect, test } from "vitest";

/** Options of any type, with a slip of the pen. */
const slip = <T>(options: object): T => options as T;

const backend = sim();
const rule = sgd({ learningRate: 0.1 });
const files = memoryFiles();
const one = () => Float32Array.of(1);
const shape = { vocabulary: 2, context: 2, width: 2, heads: 1, blocks: 1 };

const entries: [string, string, () => unknown][] = [
  ["sim", "sead", () => sim(slip({ sead: 7 }))],
  ["sim", "link.latencyMs", () => sim({ link: slip({ latencyMs: 7 }) })],
  ["sim", "plan.protokol", () => sim({ like: "nccl-2.28", plan: slip({ protokol: "LL" }) })],
  ["nccl", "stagingg", () => nccl(slip({ stagingg: "copy" }))],
  ["nccl", "plan.channel", () => nccl({ plan: slip({ channel: 2 }) })],
  ["wasm", "thread", () => wasm(slip({ thread: 2 }))],
  ["webgpu", "slabsize", () => webgpu(slip({ slabsize: 2 }))],
  ["webgpu", "limits.window", () => webgpu({ limits: slip({ window: 2 }) })],
  ["createWorld", "timeout", () => createWorld(slip({ backend, size: 2, timeout: 2 }))],
  ["connect", "timeout", () => connect(slip({ backend, timeout: 2 }))],
  ["sgd", "momentun", () => sgd(slip({ learningRate: 1, momentun: 0.9 }))],
  ["adamW", "weightdecay", () => adamW(slip({ learningRate: 1, weightdecay: 0.9 }))],
  ["lion", "beta", () => lion(slip({ learningRate: 1, beta: 0.9 }))],
  ["warmUp", "begin", () => warmUp(slip({ steps: 1, after: 1, begin: 0 }))],
  ["cosine", "min", () => cosine(slip({ peak: 1, steps: 1, min: 0 }))],
  ["mse", "reduce", () => mse(slip({ prediction: one(), target: one(), reduce: "sum" }))],
  [
    "crossEntropy",
    "weight",
    () => crossEntropy(slip({ logits: one(), targets: [0], classes: 1, weight: one() })),
  ],
  ["routeTopK", "k", () => routeTopK(one(), slip({ experts: 1, k: 1 }))],
  ["mlp", "activation", () => mlp(slip({ sizes: [1, 1], activation: "relu" }))],
  ["transformer", "layers", () => transformer(slip({ ...shape, layers: 2 }))],
  [
    "transformer",
    "dropout",
    () => transformerStage({ rank: 0, size: 1 }, slip({ ...shape, dropout: 0.1 })),
  ],
  [
    "optimizer",
    "skipped",
    () => new Optimizer(model(), rule).step(slip<StepOptions>({ skipped: ["w"] })),
  ],
  [
    "Sampler",
    "shuffel",
    () => new Sampler(slip({ samples: 4, batch: 2, rank: 0, size: 1, shuffel: false })),
  ],
  [
    "bench",
    "iters",
    () =>
      bench(
        slip({
          ...{ backend, collective: "barrier", ranks: 2 },
          ...{ sizes: { minBytes: 8, maxBytes: 8, factor: 2 }, iters: 3 },
        }),
      ),
  ],
  ["checkProperty", "run", () => checkProperty(fc.nat(), () => undefined, slip({ run: 3 }))],
  [
    "runProgram",
    "pase",
    () => runProgram(backend, fc.sample(programs(), 1)[0] as never, slip({ pase: 3 })),
  ],
];

/** The same for functions that need a communicator; every rank makes the slip. */
const onRank: [string, string, (comm: Communicator) => unknown][] = [
  ["alloc", "symetric", (comm) => comm.alloc("int8", 1, slip({ symetric: true }))],
  ["explain", "length", (comm) => comm.explain(slip<Question>({ ...question, length: 3 }))],
  ["DataParallel", "bucket", (comm) => DataParallel.create(comm, model(), slip({ bucket: 1 }))],
  [
    "ShardedParallel",
    "bucketBytes",
    (comm) => ShardedParallel.create(comm, model(), slip({ stage: 1, rule, bucketBytes: 8 })),
  ],
  [
    "ParameterServer.create",
    "stale",
    (comm) => ParameterServer.create(comm, model(), slip({ rule, staleness: 1, stale: 2 })),
  ],
  [
    "PipelineParallel.create",
    "shedule",
    (comm) => PipelineParallel.create(comm, {} as never, slip({ shedule: "gpipe" })),
  ],
  [
    "ExpertParallel.create",
    "capasity",
    (comm) => ExpertParallel.create(comm, slip({ experts: 2, width: 2, capasity: 3 })),
  ],
  [
    "DataParallel",
    "wire.share",
    (comm) => DataParallel.create(comm, model(), { wire: slip({ topK: 0.5, share: 0.1 }) }),
  ],
  [
    "mixtureOfExperts",
    "capacity",
    async (comm) => {
      const parallel = await ExpertParallel.create(comm, { experts: 2, width: 1 });
      const layer = tanh();
      mixtureOfExperts(slip({ router: layer, own: [layer], parallel, experts: 2, capacity: 3 }));
    },
  ],
  [
    "save",
    "perrank",
    (comm) => new Checkpoints(comm, files).save(1, slip({ shared: {}, perrank: {} })),
  ],
  [
    "load",
    "perrank",
    (comm) => new Checkpoints(comm, files).load(slip({ shared: {}, perrank: {} })),
  ],
  ["load", "step", (comm) => new Checkpoints(comm, files).load({ shared: {} }, slip({ step: 3 }))],
  ["Checkpoints", "keeps", (comm) => new Checkpoints(comm, files, slip({ keeps: 3 }))],
];

/** Earlier names of options, with the present ones. */
const renamed: [string, string, () => unknown][] = [
  ["nccl", "plan", () => sim(slip({ like: "nccl-2.28", nccl: { protocol: "LL" } }))],
  ["checks", "compareCalls", () => nccl(slip({ checks: "always" }))],
];

test.each(renamed)("the earlier name %s is refused with %s in the hint", (earlier, now, open) => {
  const facts = { code: "ERR_COMM_ARG", field: earlier };
  expect(open).toThrow(
    expect.objectContaining({ ...facts, hint: `${earlier} was renamed: write ${now}` }),
  );
  expect(open).toThrow(`needs one of ${now}, `);
});

const question: Question = { collective: "allReduce", dtype: "int8", op: "sum", count: 4 };

const model = () => new ParameterSet([{ name: "w", dtype: "float32", shape: [2] }]);

async function refusal(work: () => unknown): Promise<unknown> {
  try {
    return await work();
  } catch (error) {
    return error;
  }
}

/** The error of a slip: its subject, its name, and the existing names. */
function expectSlip(error: unknown, field: string): void {
  expect(error).toBeInstanceOf(InvalidArgumentError);
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
  expect((error as Error).message).toMatch(/needs one of \w+/);
}

test.each(entries)("%s refuses %s", async (subject, field, work) => {
  const error = await refusal(work);
  expectSlip(error, field);
  if (field === "sead") {
    expect((error as Error).message).toMatch(
      /^sim: sead: it is not known here, needs one of seed, /,
    );
  }
  expect((error as Error).message).toMatch(/^[\w: ]+: [\w.]+: /);
  expect(subject.length).toBeGreaterThan(0);
});

test.each(onRank)("%s refuses %s", async (subject, field, work) => {
  const world = await createWorld({ backend, size: 2 });
  const errors = await world.run((comm) => refusal(() => work(comm)));
  for (const error of errors) {
    expectSlip(error, field);
    expect((error as Error).message.startsWith(`${subject}: ${field}: `)).toBe(true);
  }
  await world.close();
});

test("options that are not an object are refused as such", () => {
  for (const given of [null, 7, "fast"]) {
    expect(() => sim(given as never)).toThrow(/sim: options: found (null|7|"fast"), needs one/);
  }
});

test("rebuild refuses an unknown name, and the world may be rebuilt", async () => {
  const world = await createWorld({ backend, size: 3 });
  expectSlip(await refusal(() => world.rebuild(slip<RebuildOptions>({ ranks: [1] }))), "ranks");
  const next = await world.rebuild({ without: [1] });
  expect(next.size).toBe(2);
  await next.close();
});

describe("calls refuse an unknown name,", () => {
  const calls: [string, (comm: Communicator, more: object) => PromiseLike<unknown>][] = [
    ["allReduce", (comm, more) => comm.allReduce({ send: bytes(comm), op: "sum", ...more })],
    ["barrier", (comm, more) => comm.barrier(more)],
    ["split", (comm, more) => comm.split({ color: 0, ...more })],
    ["send", (comm, more) => comm.send({ send: bytes(comm), peer: comm.rank, ...more })],
    ["allToAllv", (comm, more) => comm.allToAllv({ ...all(comm), ...more })],
  ];
  const bytes = (comm: Communicator) => comm.alloc("int8", 2).fill(1);
  const all = (comm: Communicator) => ({ send: bytes(comm), sendCounts: [1, 1] });

  test.each(calls)("and nothing was posted: %s", async (name, call) => {
    const world = await createWorld({ backend, size: 2 });
    await world.run(async (comm) => {
      const error = await refusal(() => call(comm, { timeout: 100 }));
      expectSlip(error, "timeout");
      expect(error).toMatchObject({ rank: comm.rank, size: 2, collective: name });
      expect((error as Error).message).toContain("timeoutMs");
      // The communicator is in step.
      await comm.barrier();
      expect(comm.stats().calls).toEqual({ barrier: 1 });
    });
    await world.close();
  });

  test("replays too, and inside of a group it is thrown", async () => {
    const world = await createWorld({ backend, size: 2 });
    await world.run(async (comm) => {
      const send = bytes(comm);
      const graph = await comm.capture(() => void comm.allReduce({ send, op: "max" }));
      const late = slip<CallOptions>({ timeout: 100 });
      expectSlip(await refusal(() => graph.replay(late)), "timeout");
      await graph.replay();
      expectSlip(await refusal(() => graph.replay(late)), "timeout");
      await graph.replay();
      const grouped = comm.group(() => {
        void comm.allReduce({ send, op: "max", ...late });
      });
      expectSlip(await refusal(() => grouped), "timeout");
      await comm.barrier();
    });
    await world.close();
  });
});
