/**
 * A pipeline of a dense layer and a mixture of experts on a mesh of data, pipeline and expert ranks, its state sharded; and the
 * same on one rank, by loops. What is dense is summed over data and expert ranks together, experts over data ranks alone.
 */
import type { Communicator } from "twinccl";
import {
  ExpertParallel,
  Mesh,
  Optimizer,
  ParameterSet,
  PipelineParallel,
  Random,
  ShardedParallel,
  type ShardingStage,
  type Stage,
  sgd,
  type Visit,
} from "twinccl/parallel";
import { linear, mixtureOfExperts, sequence, tanh } from "twinccl/parallel/models";

const [width, experts, rows, microBatches] = [3, 4, 5, 2];
/** Rows that an expert takes of a micro-batch, of the ranks of an expert line together; strikes. */
const capacity = 4;
const rule = () => sgd({ learningRate: 0.1, momentum: 0.9 });

/** The layout of the ranks; pipelines have two stages. */
export interface MixturePlan {
  readonly data: number;
  readonly expert: number;
  readonly zero: ShardingStage;
}

/** The result of a run. */
export interface MixtureRun {
  readonly losses: number[];
  /** Rows dropped in all steps, on the last stage. */
  readonly dropped: number;
  readonly values: Record<string, number[]>;
}

const draw = (count: number, ...key: number[]): Float64Array => {
  const random = new Random(...key);
  return Float64Array.from({ length: count }, () => random.normal());
};
const declared = (name: string, shape: readonly number[], ...key: number[]) => ({
  name,
  shape,
  dtype: "float64" as const,
  values: draw(shape[0]! * shape[1]!, ...key).map((each) => each / 2),
});
const denseOf = (stage: number) =>
  new ParameterSet([
    stage === 0 ? declared("dense", [width, width], 1) : declared("router", [experts, width], 2),
  ]);
const expertsOf = (begin: number, end: number) =>
  new ParameterSet(
    Array.from({ length: end - begin }, (_, at) =>
      declared(`expert${begin + at}`, [width, width], 3, begin + at),
    ),
  );
const tokensOf = (step: number, data: number, expert: number, at: number) =>
  draw(rows * width, 4, step % 2, data, expert, at);
/** The model's target for a token. */
const targetOf = (token: number): number => Math.sin(2 * token);

/** One rank's training. */
export async function trainMixture(
  comm: Communicator,
  { data, expert, zero }: MixturePlan,
  steps: number,
): Promise<MixtureRun> {
  const mesh = await Mesh.create(comm, { data, pipeline: 2, expert });
  const line = mesh.comm("pipeline");
  const parallel = await ExpertParallel.create(mesh.comm("expert"), {
    experts,
    width,
    capacity,
    dtype: "float64",
  });
  const { begin, end } = parallel.own;
  const shared = denseOf(line.rank);
  const mine = line.rank === 0 ? new ParameterSet([]) : expertsOf(begin, end);
  let dropped = 0;
  const stage: Stage<Float64Array> = {
    inputLength: () => rows * width,
    async forward(tokens, input, visit) {
      const extent = { sequences: rows, length: 1 };
      if (input === undefined) {
        await visit("dense");
        const weight = shared.get("dense");
        const layer = sequence([linear({ weight, inputs: width, outputs: width }), tanh()]);
        const pass = layer.forward(tokens, extent);
        const backward: typeof pass.backward = (above, take) => pass.backward(above, take);
        return {
          output: pass.output,
          async backward(above, take) {
            await visit("dense");
            return backward(above as Float64Array, take);
          },
        };
      }
      await visit("router");
      await visit("experts");
      const mixture = mixtureOfExperts({
        router: linear({ weight: shared.get("router"), inputs: width, outputs: experts }),
        own: [...mine].map((weight) => linear({ weight, inputs: width, outputs: width })),
        parallel,
        experts,
      });
      const pass = await mixture.forward(input, extent);
      dropped += pass.load.own;
      const gap = pass.output.map((each, at) => each - targetOf(tokens[at]!));
      const loss = Array.from(gap).reduce((sum, each) => sum + (each * each) / 2, 0);
      return {
        totals: { loss, samples: rows },
        async backward(_, take) {
          await visit("experts");
          await visit("router");
          return pass.backward(gap, take);
        },
      };
    },
  };
  const pipeline = await PipelineParallel.create(line, stage, { dtype: "float64" });
  const plane = await mesh.across(["data", "expert"]);
  const options = { stage: zero, rule: rule(), layerOf: (name: string) => name };
  const dense = await ShardedParallel.create(plane, shared, options);
  const routed = await ShardedParallel.create(mesh.comm("data"), mine, {
    ...options,
    layerOf: () => "experts",
  });
  const losses: number[] = [];
  for (let step = 0; step < steps; step++) {
    const own = Array.from({ length: microBatches }, (_, at) =>
      tokensOf(step, mesh.place("data"), mesh.place("expert"), at),
    );
    await routed.step([own], async (all, readyRouted, visitRouted) => {
      const result = await dense.step([all], (each, readyDense, visitDense) =>
        pipeline.backward(
          each,
          (name, gradient) =>
            (name.startsWith("expert") ? readyRouted : readyDense)(name, gradient),
          joined(visitDense, visitRouted),
        ),
      );
      losses.push(result.loss);
      // An expert's gradient is that of all tokens of its line: this data line's share of the weight of all.
      return { loss: 0, samples: result.samples / data };
    });
  }
  await dense.gatherValues();
  await routed.gatherValues();
  const values = [...shared, ...mine].map(({ name, value }): [string, number[]] => [
    name,
    [...value],
  ]);
  for (const each of [dense, routed, pipeline]) each[Symbol.dispose]();
  await mesh.close();
  return { losses, dropped, values: Object.fromEntries(values) };
}

/** Each layer is visited with the trainer that has it. */
function joined(dense: Visit, routed: Visit): Visit {
  const visit = (layer: string) => (layer === "experts" ? routed : dense)(layer);
  return Object.assign(visit, {
    async passes(...args: Parameters<Visit["passes"]>) {
      await routed.passes(...args);
      return dense.passes(...args);
    },
    async skip() {
      await routed.skip();
      await dense.skip();
    },
    endPass() {
      for (const each of [dense, routed]) each.endPass();
    },
  });
}

/** The same on one rank, by loops over tokens. */
export function mixtureAlone({ data, expert }: MixturePlan, steps: number): MixtureRun {
  const all = [...denseOf(0), ...denseOf(1), ...expertsOf(0, experts)];
  const optimizer = new Optimizer(all, rule());
  const of = (name: string) => all.find((each) => each.name === name)!;
  const losses: number[] = [];
  let dropped = 0;
  const samples = data * expert * microBatches * rows;
  for (let step = 0; step < steps; step++) {
    for (const { gradient } of all) gradient.fill(0);
    let loss = 0;
    for (let at = 0; at < data * microBatches; at++) {
      const taken = new Array<number>(experts).fill(0);
      for (let row = 0; row < expert * rows; row++) {
        const [micro, from] = [at % microBatches, Math.floor(at / microBatches)];
        const tokens = tokensOf(step, from, Math.floor(row / rows), micro);
        const x = [...tokens.subarray((row % rows) * width, ((row % rows) + 1) * width)];
        const result = ofToken(x, of, (chosen) => taken[chosen]!++ < capacity);
        loss += result.loss;
        if (result.dropped) dropped += 1;
      }
    }
    for (const { gradient } of all) {
      for (const [at, each] of gradient.entries()) gradient[at] = each / samples;
    }
    optimizer.step();
    losses.push(loss / samples);
  }
  const values = all.map(({ name, value }): [string, number[]] => [name, [...value]]);
  return { losses, dropped, values: Object.fromEntries(values) };
}

/** Forward and backward of one token; adds to the gradients. */
function ofToken(
  x: readonly number[],
  of: (name: string) => {
    readonly value: ArrayLike<number>;
    readonly gradient: Float32Array | Float64Array;
  },
  place: (expert: number) => boolean,
): { loss: number; dropped: boolean } {
  const times = (w: ArrayLike<number>, v: readonly number[], count: number) =>
    Array.from({ length: count }, (_, o) =>
      v.reduce((sum, each, i) => sum + each * w[o * width + i]!, 0),
    );
  const outer = (name: string, left: readonly number[], right: readonly number[]) => {
    const { gradient } = of(name);
    for (const [o, a] of left.entries()) {
      for (const [i, b] of right.entries()) gradient[o * width + i]! += a * b;
    }
  };
  const h = times(of("dense").value, x, width).map(Math.tanh);
  const scores = times(of("router").value, h, experts);
  const chosen = scores.indexOf(Math.max(...scores));
  const total = scores.reduce((sum, each) => sum + Math.exp(each), 0);
  const shares = scores.map((each) => Math.exp(each) / total);
  const share = shares[chosen]!;
  const kept = place(chosen);
  const expert = of(`expert${chosen}`).value;
  const made = times(expert, h, width);
  const gap = x.map((each, i) => (kept ? share * made[i]! : 0) - targetOf(each));
  const loss = gap.reduce((sum, each) => sum + (each * each) / 2, 0);
  if (!kept) return { loss, dropped: true };
  outer(
    `expert${chosen}`,
    gap.map((each) => share * each),
    h,
  );
  const slope = gap.reduce((sum, each, i) => sum + each * made[i]!, 0);
  const byScores = shares.map((each, at) => each * slope * ((at === chosen ? 1 : 0) - share));
  outer("router", byScores, h);
  const byHidden = h.map((each, i) => {
    let sum = 0;
    for (const [o, above] of gap.entries()) sum += share * above * expert[o * width + i]!;
    for (const [o, above] of byScores.entries()) sum += above * of("router").value[o * width + i]!;
    return sum * (1 - each * each);
  });
  outer("dense", byHidden, x);
  return { loss, dropped: false };
}
