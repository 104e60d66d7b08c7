/** Tensors and layers divided over ranks come out where one rank with all of them does. */
import { type Communicator, createWorld } from "twinccl";
import {
  adamW,
  DataParallel,
  gatherTensor,
  Mesh,
  Optimizer,
  partOf,
  Random,
  splitTensor,
  type Tensor,
  TensorParallel,
} from "twinccl/parallel";
import {
  addTo,
  columnLinear,
  type Layer,
  linear,
  rowLinear,
  sequence,
  shardedSequence,
  shardedTransformer,
  type TakeGradient,
  tanh,
  transformer,
  type Weights,
} from "twinccl/parallel/models";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function onRanks<T>(
  size: number,
  program: (comm: Communicator) => Promise<T>,
  backend = sim({ seed: size }),
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const draw = (seed: number, count: number): Float64Array => {
  const random = new Random(seed);
  return Float64Array.from({ length: count }, () => random.normal());
};
const product = (shape: readonly number[]): number => shape.reduce((all, each) => all * each, 1);
const tensor = (seed: number, shape: readonly number[]): Tensor => ({
  shape,
  data: draw(seed, product(shape)),
});

describe("parts", () => {
  test("follow one another, differ by one unit at most, and the first are the larger", () => {
    for (const unit of [1, 3]) {
      for (let units = 0; units <= 9; units++) {
        for (let size = 1; size <= 5; size++) {
          const parts = Array.from({ length: size }, (_, rank) =>
            partOf(units * unit, { rank, size, unit }),
          );
          const lengths = parts.map(({ begin, end }) => end - begin);
          expect(parts.map(({ begin }) => begin)).toEqual(
            [0, ...parts.map(({ end }) => end)].slice(0, -1),
          );
          expect(parts.at(-1)?.end).toBe(units * unit);
          expect(lengths.toSorted((a, b) => b - a)).toEqual(lengths);
          expect((lengths[0] as number) - (lengths.at(-1) as number)).toBeLessThanOrEqual(unit);
        }
      }
    }
  });
  test("are refused for an invalid count", () => {
    expect(() => partOf(4, { rank: 2, size: 2 })).toThrow(
      "rank: found 2, needs a rank from 0 to 1",
    );
    expect(() => partOf(4, { rank: 0, size: 2, unit: 3 })).toThrow("unit: found 3");
    expect(() => splitTensor(tensor(1, [4]), 1, { rank: 0, size: 2 })).toThrow("axis: found 1");
    const wrong = { shape: [5], data: new Float64Array(4) };
    expect(() => splitTensor(wrong, 0, { rank: 0, size: 2 })).toThrow("data: found 4 elements");
    for (const extent of [1.5, -2]) {
      const odd = { shape: [2, extent, 6 / extent / 2], data: new Float32Array(6) };
      const fault = `shape: found ${extent}, needs integers of at least 0`;
      expect(() => splitTensor(odd, 0, { rank: 0, size: 2 })).toThrow(fault);
    }
  });
  test("of an axis are its columns", () => {
    const whole = { shape: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) };
    expect(splitTensor(whole, 1, { rank: 0, size: 2 })).toEqual({
      shape: [2, 2],
      data: Float32Array.of(1, 2, 4, 5),
    });
    expect(splitTensor(whole, 1, { rank: 1, size: 2 }).data).toEqual(Float32Array.of(3, 6));
  });
  test.each([
    [[7], 0, 3],
    [[5, 3], 0, 4],
    [[3, 5], 1, 4],
    [[2, 7, 3], 1, 3],
    [[2, 1, 3], 1, 4],
    [[0, 3], 1, 2],
  ] as const)(
    "of %j along axis %d over %d ranks gather to the whole",
    async (shape, axis, size) => {
      const whole = tensor(3, shape);
      const gathered = await onRanks(size, (comm) =>
        gatherTensor(comm, splitTensor(whole, axis, comm), axis),
      );
      for (const each of gathered) expect(each).toEqual(whole);
    },
  );
  test("that differ elsewhere are refused on all ranks", async () => {
    const errors = await onRanks(3, (comm) =>
      gatherTensor(comm, tensor(1, [comm.rank === 1 ? 3 : 2, 4]), 1).catch(String),
    );
    for (const error of errors) expect(error).toMatch(/other extents.*rank 1 differs/);
  });
});

/** Gradients by name. */
function collector(): { take: TakeGradient; gradients: Map<string, number[]> } {
  const gradients = new Map<string, number[]>();
  return { take: (name, gradient) => gradients.set(name, [...gradient]), gradients };
}

function expectClose(
  found: ArrayLike<number>,
  expected: ArrayLike<number>,
  relative: number,
): void {
  expect(found.length).toBe(expected.length);
  const largest = Math.max(...Array.from(expected, Math.abs));
  for (let at = 0; at < expected.length; at++) {
    const off = Math.abs((found[at] as number) - (expected[at] as number));
    expect(off, `element ${at}`).toBeLessThanOrEqual(relative * largest);
  }
}

describe.each([1, 2, 3, 5])("a column and a row linear layer on %d ranks", (size) => {
  const [inputs, hidden, outputs, rows] = [4, 5, 3, 6];
  const weights = {
    up: tensor(1, [hidden, inputs]),
    upBias: tensor(2, [hidden]),
    down: tensor(3, [outputs, hidden]),
    downBias: tensor(4, [outputs]),
  };
  const named = (name: string, { data }: Tensor): Weights => ({ name, value: data });
  const whole: Layer = sequence([
    linear({
      weight: named("up", weights.up),
      bias: named("upBias", weights.upBias),
      inputs,
      outputs: hidden,
    }),
    tanh(),
    linear({
      weight: named("down", weights.down),
      bias: named("downBias", weights.downBias),
      inputs: hidden,
      outputs,
    }),
  ]);
  const input = draw(5, rows * inputs);
  const above = draw(6, rows * outputs);
  const extent = { sequences: rows, length: 1 };

  test("have the results of one whole pair, forward and backward", async () => {
    const expected = collector();
    const pass = whole.forward(input, extent);
    const below = pass.backward(above, expected.take);
    const seen = await onRanks(size, async (comm) => {
      const cut = (name: string, each: Tensor, axis: number): Weights =>
        named(name, splitTensor(each, axis, comm));
      const own = partOf(hidden, comm);
      const width = own.end - own.begin;
      const up = cut("up", weights.up, 0);
      const column = columnLinear(comm, {
        weight: up,
        bias: cut("upBias", weights.upBias, 0),
        inputs,
        outputs: width,
      });
      const row = rowLinear(comm, {
        weight: cut("down", weights.down, 1),
        bias: named("downBias", weights.downBias),
        inputs: width,
        outputs,
      });
      const middle = {
        forward: async (x: Float32Array | Float64Array) => {
          const inner = tanh().forward(x, extent);
          return {
            output: inner.output,
            backward: async (g: Float32Array | Float64Array) => inner.backward(g, () => {}),
          };
        },
      };
      const own2 = collector();
      const both = await shardedSequence([column, middle, row]).forward(input, extent);
      const back = await both.backward(above, own2.take);
      const gathered: Record<string, Tensor> = {};
      for (const [name, axis, shape] of [
        ["up", 0, [width, inputs]],
        ["upBias", 0, [width]],
        ["down", 1, [outputs, width]],
      ] as const) {
        const part = { shape, data: Float64Array.from(own2.gradients.get(name) ?? []) };
        gathered[name] = await gatherTensor(comm, part, axis);
      }
      return { output: both.output, back, gathered, bias: own2.gradients.get("downBias") };
    });
    for (const { output, back, gathered, bias } of seen) {
      expectClose(output, pass.output, 1e-14);
      expectClose(back, below, 1e-14);
      for (const [name, { data }] of Object.entries(gathered)) {
        expectClose(data, expected.gradients.get(name)!, 1e-14);
      }
      expect(bias).toEqual(expected.gradients.get("downBias"));
    }
    for (const { output } of seen) expect(output).toEqual(seen[0]?.output);
  });
});

const shape = {
  vocabulary: 7,
  context: 5,
  width: 6,
  heads: 3,
  blocks: 2,
  hidden: 7,
  seed: 3,
} as const;
const STEPS = 50;
const batchOf = (step: number, sequences: number) => {
  const random = new Random(11, step);
  return {
    tokens: Array.from({ length: sequences * 6 }, () => random.below(7)),
    sequences,
  };
};
const rule = () => adamW({ learningRate: 0.01 });

/** Strikes in a part of the steps. */
const CLIP = 0.6;

/** One rank, all samples, no communicator. */
function trainedAlone() {
  const model = transformer({ ...shape, dtype: "float64" });
  const optimizer = new Optimizer(model.parameters, rule());
  const losses: number[] = [];
  const norms: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    model.parameters.zeroGradients();
    const { loss, samples } = model.backward(batchOf(step, 4), addTo(model.parameters));
    const gradients = model.parameters.gradients("float64");
    gradients.forEach((each, at) => {
      gradients[at] = each / samples;
    });
    const norm = Math.hypot(...gradients);
    gradients.forEach((each, at) => {
      gradients[at] = norm > CLIP ? each * (CLIP / norm) : each;
    });
    optimizer.step();
    losses.push(loss / samples);
    norms.push(norm);
  }
  const values = new Map(
    [...model.parameters].map(({ name, value }) => [name, value as Float64Array]),
  );
  return { losses, norms, values };
}

interface Trained {
  readonly losses: number[];
  readonly norms: number[];
  readonly tensors: Record<string, Tensor>;
}

/** Data parallel along one axis, divided along the other. */
async function trained(
  comm: Communicator,
  extents: { data: number; tensor: number },
): Promise<Trained> {
  const mesh = await Mesh.create(comm, extents);
  const tensorComm = mesh.comm("tensor");
  const model = shardedTransformer(tensorComm, { ...shape, dtype: "float64" });
  const trainer = await DataParallel.create(mesh.comm("data"), model.parameters, {
    bucketBytes: 500,
    maxGradientNorm: CLIP,
    divided: model.divided,
  });
  const optimizer = new Optimizer(model.parameters, rule());
  const losses: number[] = [];
  const norms: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const { tokens } = batchOf(step, 4);
    const { begin, end } = partOf(4, { rank: mesh.place("data"), size: extents.data });
    const own = { tokens: tokens.slice(begin * 6, end * 6), sequences: end - begin };
    const { loss, gradientNorm } = await trainer.step([own], (batch, ready) =>
      model.backward(batch, ready),
    );
    optimizer.step();
    losses.push(loss);
    norms.push(gradientNorm);
  }
  const tensors: Record<string, Tensor> = {};
  for (const { name, shape: own, value } of model.parameters) {
    const part = { shape: own, data: value.slice() };
    const axis = model.axisOf(name);
    tensors[name] = axis === undefined ? part : await gatherTensor(tensorComm, part, axis);
  }
  trainer[Symbol.dispose]();
  await mesh.close();
  return { losses, norms, tensors };
}

describe.each([
  { data: 1, tensor: 1 },
  { data: 1, tensor: 2 },
  { data: 1, tensor: 3 },
  { data: 1, tensor: 4 },
  { data: 3, tensor: 2 },
  { data: 2, tensor: 4 },
])("fifty steps of a transformer on a mesh of %j", (extents) => {
  const size = extents.data * extents.tensor;
  test("equal the one-rank run, with the same bits on all ranks and in every run", async () => {
    const alone = trainedAlone();
    const ranks = await onRanks(size, (comm) => trained(comm, extents));
    const clipped = alone.norms.filter((norm) => norm > CLIP).length;
    expect(clipped).toBeGreaterThan(5);
    expect(clipped).toBeLessThan(STEPS - 5);
    for (const { losses, norms, tensors } of ranks) {
      expectClose(norms, alone.norms, 1e-10);
      losses.forEach((loss, step) => {
        expect(Math.abs(loss / alone.losses[step]! - 1), `step ${step}`).toBeLessThan(1e-10);
      });
      for (const [name, values] of alone.values) {
        // A key's bias has no gradient but rounding, which AdamW makes steps of.
        if (!name.endsWith("key.bias")) expectClose(tensors[name]!.data, values, 1e-10);
      }
      expect(tensors).toEqual(ranks[0]?.tensors);
    }
    const again = await onRanks(size, (comm) => trained(comm, extents), sim({ seed: 99 }));
    expect(again).toEqual(ranks);
  });
});

describe("the shard protocol", () => {
  const part = (rank: number) => ({
    output: Float64Array.of(rank, 1, 2 * rank),
    shape: [3],
    loss: rank + 1,
    gradientNorm: rank === 0 ? 3 : 4,
    samples: rank === 0 ? 1 : 3,
  });
  test("sums outputs, weighs losses by samples, joins norms of different parameters", async () => {
    const steps = await onRanks(2, (comm) =>
      new TensorParallel(comm, {
        step: (factor: number) => {
          const own = part(comm.rank);
          return { ...own, output: own.output.map((each) => factor * each) };
        },
      }).step(2),
    );
    for (const step of steps) {
      expect(step).toEqual({
        output: Float64Array.of(2, 4, 4),
        shape: [3],
        loss: (1 + 2 * 3) / 4,
        gradientNorm: 5,
        samples: 4,
      });
    }
  });
  test.each([
    ["length", { output: new Float64Array(2), shape: [2] }],
    ["shape", { output: new Float64Array(3), shape: [3, 1] }],
    ["dtype", { output: new Float32Array(3) }],
  ])("refuses outputs that differ in %s on all ranks, and pads none", async (_, change) => {
    const errors = await onRanks(3, (comm) => {
      const step = () => (comm.rank === 2 ? { ...part(1), ...change } : part(1));
      return new TensorParallel(comm, { step }).step(0).catch((error) => error);
    });
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", ranks: [2], field: "output" });
    }
  });
  test("refuses a step without a sample on all ranks", async () => {
    const errors = await onRanks(2, (comm) =>
      new TensorParallel(comm, { step: () => ({ ...part(0), loss: Number.NaN, samples: 0 }) })
        .step(0)
        .catch(String),
    );
    for (const error of errors) expect(error).toContain("samples: found 0 on all ranks");
  });
  test("joins norms with squares that would overflow", async () => {
    const steps = await onRanks(2, (comm) =>
      new TensorParallel(comm, { step: () => ({ ...part(0), gradientNorm: 3e200 }) }).step(0),
    );
    for (const { gradientNorm } of steps) expect(gradientNorm / 3e200).toBeCloseTo(Math.SQRT2, 14);
  });
  test("refuses a second step before the end of the first: their outputs would be summed crosswise", async () => {
    const steps = await onRanks(2, async (comm) => {
      const model = new TensorParallel(comm, {
        async step(batch: number) {
          // The ranks finish the two steps in different orders.
          if (batch === comm.rank) await new Promise((resolve) => setTimeout(resolve, 5));
          return { ...part(0), output: Float64Array.of(batch, 0, 0) };
        },
      });
      const [first, second] = [model.step(0), model.step(1).catch((error: unknown) => error)];
      expect(await second).toMatchObject({ code: "ERR_COMM_CLOSED" });
      expect(String(await second)).toMatch(/step: a step is still running\nhint: await it first$/);
      return [(await first).output[0], (await model.step(1)).output[0]];
    });
    expect(steps).toEqual([
      [0, 2],
      [0, 2],
    ]);
  });
  test("refuses a shard without a result", async () => {
    const nothing = { step: () => undefined as unknown as ReturnType<typeof part> };
    const [error] = await onRanks(1, (comm) =>
      new TensorParallel(comm, nothing).step(0).catch((each: unknown) => each),
    );
    expect(error).toMatchObject({ code: "ERR_COMM_ARG" });
  });
  test.each([
    ["output", { shape: [4] }, "output: found 3 elements"],
    ["output", { shape: [2] }, "output: found 3 elements"],
    ["output", { output: [1, 2, 3] as unknown as Float64Array }, "output: found object"],
    ["samples", { samples: -1 }, "samples: found -1"],
    ["loss", { loss: Number.NaN }, "loss: found NaN"],
    ["norm", { gradientNorm: Number.POSITIVE_INFINITY }, "gradientNorm: found Infinity"],
    ["norm that is a text", { gradientNorm: "1" as never }, 'gradientNorm: found "1", needs a'],
  ])("refuses a shard's wrong %s", async (_, change, message) => {
    const errors = await onRanks(1, (comm) =>
      new TensorParallel(comm, { step: () => ({ ...part(0), ...change }) }).step(0).catch(String),
    );
    expect(errors[0]).toContain(message);
  });
});
