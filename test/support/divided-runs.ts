/** Short trainings of every kind of division, for comparing backends and executors: what each rank is left with. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  adamW,
  DataParallel,
  ExpertParallel,
  Mesh,
  Optimizer,
  ParameterServer,
  ParameterSet,
  PipelineParallel,
  type PipelineSchedule,
  Random,
  sgd,
  TensorParallel,
} from "twinccl/parallel";
import { linear, mixtureOfExperts, mlpStage, sequence, tanh } from "twinccl/parallel/models";
import { type MeshPlan, trainOnMesh } from "./mesh-run.ts";
import { trainMixture } from "./mixture-mesh-run.ts";

/** A training on so many ranks. */
export interface DividedRun {
  readonly name: string;
  readonly size: number;
  program(comm: Communicator): Promise<unknown>;
}

const draw = (count: number, ...key: number[]): Float32Array => {
  const random = new Random(...key);
  return Float32Array.from({ length: count }, () => random.normal());
};

const onMesh = (plan: MeshPlan): DividedRun => ({
  name: `a mesh of ${plan.data} × ${plan.pipeline} × ${plan.tensor}, ZeRO ${plan.zero}`,
  size: plan.data * plan.pipeline * plan.tensor,
  program: (comm) => trainOnMesh(comm, plan, 6),
});

const pipeline = (schedule: PipelineSchedule): DividedRun => ({
  name: `a pipeline by ${schedule}`,
  size: 6,
  async program(comm) {
    const mesh = await Mesh.create(comm, { data: 2, pipeline: 3 });
    const line = mesh.comm("pipeline");
    const stage = mlpStage(line, { sizes: [3, 7, 6, 5, 2], seed: 4 });
    const stages = await PipelineParallel.create(line, stage, { schedule });
    const trainer = await DataParallel.create(mesh.comm("data"), stage.parameters);
    const optimizer = new Optimizer(stage.parameters, adamW({ learningRate: 0.02 }));
    const losses: number[] = [];
    for (let step = 0; step < 6; step++) {
      const batches = Array.from({ length: 5 }, (_, at) => ({
        input: draw(9, step, mesh.place("data"), at),
        target: draw(6, step, mesh.place("data"), at, 1),
      }));
      const { loss } = await trainer.step([batches], (all, ready) => stages.backward(all, ready));
      optimizer.step();
      losses.push(loss);
    }
    trainer[Symbol.dispose]();
    stages[Symbol.dispose]();
    return { losses, values: stage.parameters.values("float32").slice() };
  },
});

const experts: DividedRun = {
  name: "a mixture of experts",
  size: 3,
  async program(comm) {
    const [width, hidden, count] = [5, 4, 7];
    const parallel = await ExpertParallel.create(comm, { experts: count, width, capacity: 4 });
    const { begin, end } = parallel.own;
    const own = Array.from({ length: end - begin }, (_, at) => begin + at);
    const router = new ParameterSet([
      { name: "router", shape: [count, width], values: draw(count * width, 1) },
    ]);
    const mine = new ParameterSet(
      own.flatMap((expert) => [
        { name: `up${expert}`, shape: [hidden, width], values: draw(hidden * width, 2, expert) },
        { name: `down${expert}`, shape: [width, hidden], values: draw(hidden * width, 3, expert) },
      ]),
    );
    const mixture = mixtureOfExperts({
      router: linear({ weight: router.get("router"), inputs: width, outputs: count }),
      own: own.map((expert) =>
        sequence([
          linear({ weight: mine.get(`up${expert}`), inputs: width, outputs: hidden }),
          tanh(),
          linear({ weight: mine.get(`down${expert}`), inputs: hidden, outputs: width }),
        ]),
      ),
      parallel,
      experts: count,
      choices: 2,
    });
    const trainer = await DataParallel.create(comm, router);
    const optimizer = new Optimizer([...router, ...mine], sgd({ learningRate: 0.3 }));
    const results: unknown[] = [];
    for (let step = 0; step < 6; step++) {
      // Rank r brings 4 r tokens.
      const tokens = 4 * comm.rank;
      const input = draw(tokens * width, 4, step, comm.rank);
      const { loss, weight } = await trainer.step([input], async (rows, ready) => {
        const pass = await mixture.forward(rows, { sequences: tokens, length: 1 });
        const gap = pass.output.map((each, at) => each - Math.tanh(rows[at]!));
        results.push(pass.load);
        await pass.backward(gap, (name, gradient) => {
          if (name === "router") ready(name, gradient);
          else mine.get(name).gradient.set(gradient);
        });
        return {
          loss: Array.from(gap).reduce((sum, each) => sum + each * each, 0),
          samples: tokens,
        };
      });
      for (const { gradient } of mine) {
        for (const [at, each] of gradient.entries()) gradient[at] = each / weight;
      }
      optimizer.step();
      results.push(loss);
    }
    trainer[Symbol.dispose]();
    return { results: results, values: [...router, ...mine].map(({ value }) => value.slice()) };
  },
};

const shards: DividedRun = {
  name: "shards of one's own",
  size: 5,
  async program(comm) {
    const parts = new TensorParallel(comm, {
      step: (step: number) => ({
        output: draw(11, step, comm.rank),
        shape: [11],
        loss: draw(1, 7, step, comm.rank)[0]!,
        gradientNorm: 1 + comm.rank / 3,
        samples: comm.rank,
      }),
    });
    return [await parts.step(1), await parts.step(2)];
  },
};

/** One worker: with more, the order of arrival depends on the executor's time. */
const server: DividedRun = {
  name: "a parameter server and its worker",
  size: 2,
  async program(comm) {
    const model = new ParameterSet([
      { name: "a", shape: [5], values: draw(5, 1) },
      { name: "b", shape: [3], dtype: "float64", values: draw(3, 2) },
    ]);
    const rule = adamW({ learningRate: 0.1 });
    const end = await ParameterServer.create(comm, model, { rule, staleness: 0 });
    if (end.isServer) {
      const report = await end.serve();
      return { report, values: [...model].map(({ value }) => value.slice()) };
    }
    const seen: unknown[] = [];
    for (let step = 0; step < 6; step++) {
      const version = await end.pull();
      for (const { value, gradient } of model) {
        for (const at of gradient.keys()) gradient[at] = value[at]! - 1;
      }
      seen.push(version, await end.push(version));
    }
    await end.leave();
    return seen;
  },
};

/** Sums of two ranks alone: they have the same bits in any order of folding. */
export const runsOfPairs: readonly DividedRun[] = [
  ...([1, 2, 3] as const).map((zero) => onMesh({ data: 2, pipeline: 2, tensor: 2, zero })),
  ...([1, 2, 3] as const).map((zero) => onMesh({ data: 2, pipeline: 1, tensor: 2, zero })),
  onMesh({ data: 1, pipeline: 4, tensor: 2, zero: 3 }),
  pipeline("gpipe"),
  pipeline("1f1b"),
  server,
];

/** Every kind of division. */
export const dividedRuns: readonly DividedRun[] = [
  ...runsOfPairs,
  onMesh({ data: 3, pipeline: 2, tensor: 1, zero: 3 }),
  onMesh({ data: 3, pipeline: 1, tensor: 2, zero: 2 }),
  onMesh({ data: 1, pipeline: 2, tensor: 3, zero: 1 }),
  ...([1, 2, 3] as const).map(
    (zero): DividedRun => ({
      name: `a mesh of 2 data × 2 pipeline × 2 expert ranks, ZeRO ${zero}`,
      size: 8,
      program: (comm) => trainMixture(comm, { data: 2, expert: 2, zero }, 6),
    }),
  ),
  experts,
  shards,
];

/** The state of every rank after the run. */
export async function runDivided(backend: Backend, run: DividedRun): Promise<unknown[]> {
  const world = await createWorld({ backend, size: run.size });
  try {
    return await world.run((comm) => run.program(comm));
  } finally {
    await world.close();
  }
}
