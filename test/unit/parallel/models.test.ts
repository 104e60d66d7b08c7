/** The small models: gradients by finite differences, training as PyTorch recorded it, reproducible beginnings, refusals. */
import { adamW, Optimizer, ParameterSet, Random, sgd } from "twinccl/parallel";
import { addTo, type Model, mlp, transformer } from "twinccl/parallel/models";
import { describe, expect, test } from "vitest";
import { expectNear, torchRecord } from "../../support/torch-records.ts";

const draw = (seed: number, count: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length: count }, () => random.normal());
};
const drawTokens = (seed: number, count: number, vocabulary: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length: count }, () => random.below(vocabulary));
};

const shape = { vocabulary: 5, context: 4, width: 6, heads: 2, blocks: 2, hidden: 7 } as const;

/** Models in float64 with a batch each, and parameters shaken so that none is at a point of symmetry. */
const cases: Readonly<Record<string, () => { model: Model<never>; batch: never }>> = {
  "mlp with squared errors": () => {
    const model = mlp({ sizes: [3, 5, 4, 2], dtype: "float64", seed: 1 });
    return { model, batch: { input: draw(2, 9), target: draw(3, 6) } as never };
  },
  "mlp with weighted cross entropy": () => {
    const classWeights = [0.5, 2, 1];
    const model = mlp({
      sizes: [3, 6, 3],
      loss: "crossEntropy",
      classWeights,
      dtype: "float64",
      seed: 1,
    });
    return { model, batch: { input: draw(2, 12), target: [0, 2, 1, 1] } as never };
  },
  transformer: () => {
    const model = transformer({ ...shape, dtype: "float64", seed: 1 });
    return { model, batch: { tokens: drawTokens(4, 15, 5), sequences: 3 } as never };
  },
};

function shaken(name: string): { model: Model<never>; batch: never } {
  const made = cases[name]!();
  const random = new Random(77);
  for (const { value } of made.model.parameters) {
    value.forEach((each, at) => {
      value[at] = each + 0.3 * random.normal();
    });
  }
  return made;
}

describe.each(Object.keys(cases))("%s", (name) => {
  test("has the gradient that finite differences find, by every element", () => {
    const { model, batch } = shaken(name);
    const result = model.backward(batch, addTo(model.parameters));
    expect(result).toEqual(model.loss(batch));
    const step = 1e-5;
    for (const parameter of model.parameters) {
      const { value, gradient } = parameter;
      let steepest = 0;
      for (let at = 0; at < value.length; at++) {
        const kept = value[at] as number;
        value[at] = kept + step;
        const above = model.loss(batch).loss;
        value[at] = kept - step;
        const below = model.loss(batch).loss;
        value[at] = kept;
        const slope = (above - below) / (2 * step);
        steepest = Math.max(steepest, Math.abs(slope));
        // The third derivative times step² and the loss's own rounding over step are both below this.
        expect(Math.abs((gradient[at] as number) - slope), `${parameter.name}[${at}]`).toBeLessThan(
          1e-8 * Math.max(1, result.loss),
        );
      }
      // A key's bias moves all scores of a row alike, so it has none.
      if (!parameter.name.endsWith("key.bias"))
        expect(steepest, parameter.name).toBeGreaterThan(1e-4);
    }
  });

  test("reports each gradient once, last used first", () => {
    const { model, batch } = shaken(name);
    const names: string[] = [];
    model.backward(batch, (each) => names.push(each));
    const declared = [...model.parameters].sort((a, b) => b.declared - a.declared);
    const modules = (names: readonly string[]): string[] => [
      ...new Set(names.map((each) => each.replace(/\.(weight|bias)$/, ""))),
    ];
    expect(names.toSorted()).toEqual([...model.parameters.names]);
    expect(modules(names)).toEqual(modules(declared.map((each) => each.name)));
  });

  test("may have several passes under way, and adds up micro-batches", () => {
    const { model, batch } = shaken(name);
    model.backward(batch, addTo(model.parameters));
    const once = model.parameters.gradients("float64").slice();
    model.backward(batch, addTo(model.parameters));
    expect(model.parameters.gradients("float64")).toEqual(once.map((each) => 2 * each));
  });
});

interface Trained {
  readonly options: { lr: number; momentum: number; betas: [number, number]; weight_decay: number };
  readonly initial: Readonly<Record<string, readonly number[]>>;
  readonly firstGradients: Readonly<Record<string, readonly number[]>>;
  readonly losses: readonly number[];
  readonly final: Readonly<Record<string, readonly number[]>>;
}
interface Records {
  readonly mlp: Trained & {
    readonly sizes: readonly number[];
    readonly batches: readonly { input: number[]; target: number[] }[];
  };
  readonly transformer: Trained & {
    readonly shape: typeof shape;
    readonly batches: readonly { tokens: number[]; rows: number }[];
  };
}

/**
 * Float64. Rounding differences grow through the steps, as any perturbation of training does: 1e-12 for the first
 * gradients, then 1e-10 for fifty steps.
 */
function expectTrained<B>(
  model: Model<B>,
  batches: readonly B[],
  optimizer: Optimizer,
  record: Trained,
): void {
  const { parameters } = model;
  for (const [name, values] of Object.entries(record.initial))
    parameters.get(name).value.set(values);
  expect(parameters.names.toSorted()).toEqual(Object.keys(record.initial).sort());
  const losses = record.losses.map((_, step) => {
    parameters.zeroGradients();
    const batch = batches[step % batches.length] as B;
    const { loss, weight = Number.NaN } = model.backward(batch, addTo(parameters));
    const gradients = parameters.gradients("float64");
    gradients.forEach((each, at) => {
      gradients[at] = each / weight;
    });
    if (step === 0) {
      for (const [name, expected] of Object.entries(record.firstGradients)) {
        expectNear(parameters.get(name).gradient, expected, () => 1e-12, `gradient of ${name}`);
      }
    }
    optimizer.step();
    return loss / weight;
  });
  expectNear(losses, record.losses, (at) => 1e-10 * record.losses[at]!, "losses");
  expect(losses.at(-1)).toBeLessThan(losses[0] as number);
  for (const [name, expected] of Object.entries(record.final)) {
    expectNear(parameters.get(name).value, expected, () => 1e-10, `${name} in the end`);
  }
}

describe("as PyTorch", () => {
  test("fifty steps of an mlp with momentum", () => {
    const record = torchRecord<Records>("models").mlp;
    const model = mlp({ sizes: record.sizes, dtype: "float64" });
    const { lr, momentum } = record.options;
    const optimizer = new Optimizer(model.parameters, sgd({ learningRate: lr, momentum }));
    expectTrained(model, record.batches, optimizer, record);
  });
  test("fifty steps of a transformer with AdamW", () => {
    const record = torchRecord<Records>("models").transformer;
    const model = transformer({ ...record.shape, dtype: "float64" });
    const { lr, betas, weight_decay } = record.options;
    const rule = adamW({ learningRate: lr, betas, weightDecay: weight_decay });
    const batches = record.batches.map(({ rows, tokens }) => ({ sequences: rows, tokens }));
    expectTrained(model, batches, new Optimizer(model.parameters, rule), record);
  });
});

describe("a transformer", () => {
  test("never looks ahead: a later token changes no earlier logits", () => {
    const model = transformer({ ...shape, seed: 3 });
    const first = model.logits([1, 2, 3, 4]);
    const second = model.logits([1, 2, 0, 4]);
    expect(second.subarray(0, 10)).toEqual(first.subarray(0, 10));
    expect(second.subarray(10)).not.toEqual(first.subarray(10));
    expect(model.logits([1, 2])).toEqual(first.subarray(0, 10));
  });
  test("keeps sequences apart", () => {
    const model = transformer({ ...shape, dtype: "float64", seed: 3 });
    const apart = [
      [1, 2, 3],
      [4, 0, 1],
    ].map((tokens) => model.loss({ tokens, sequences: 1 }).loss);
    const together = model.loss({ tokens: [1, 2, 3, 4, 0, 1], sequences: 2 });
    expect(together.loss).toBeCloseTo(apart[0]! + apart[1]!, 12);
    expect(together).toMatchObject({ samples: 4, weight: 4 });
  });
});

describe("initial values", () => {
  test("are fixed by seed and name alone: another shape elsewhere moves none", () => {
    const values = (options: Parameters<typeof mlp>[0], name: string) =>
      mlp(options).parameters.get(name).value;
    const one = values({ sizes: [3, 4, 2], seed: 5 }, "layer0.weight");
    expect(values({ sizes: [3, 4, 7, 9], seed: 5 }, "layer0.weight")).toEqual(one);
    expect(values({ sizes: [3, 4, 2], seed: 6 }, "layer0.weight")).not.toEqual(one);
    expect(Math.max(...one.map(Math.abs))).toBeLessThanOrEqual(1 / Math.sqrt(3));
  });
  test("of float32 are those of float64, rounded", () => {
    const wide = transformer({ ...shape, dtype: "float64", seed: 2 }).parameters;
    const narrow = transformer({ ...shape, dtype: "float32", seed: 2 }).parameters;
    expect(narrow.values("float32")).toEqual(Float32Array.from(wide.values("float64")));
    expect(narrow.values("float64")).toHaveLength(0);
  });
  test("are unchanged from earlier versions", () => {
    const { parameters } = mlp({ sizes: [2, 1], dtype: "float64", seed: 7 });
    expect(parameters).toBeInstanceOf(ParameterSet);
    expect([...parameters.values("float64")]).toMatchInlineSnapshot(`
      [
        -0.3454864014322,
        0.5691213104909874,
        0.6896193386088543,
      ]
    `);
  });
});

describe("float32 follows float64", () => {
  test.each(["mlp", "transformer"])("%s", (name) => {
    const gradients = (["float32", "float64"] as const).map((dtype) => {
      const model: Model<never> =
        name === "mlp"
          ? mlp({ sizes: [3, 8, 2], dtype, seed: 4 })
          : transformer({ ...shape, dtype, seed: 4 });
      const batch =
        name === "mlp"
          ? { input: draw(5, 6), target: draw(6, 4) }
          : { tokens: drawTokens(7, 10, 5), sequences: 2 };
      model.backward(batch as never, addTo(model.parameters));
      return model.parameters.gradients(dtype);
    });
    const largest = Math.max(...(gradients[1] as Float64Array).map(Math.abs));
    (gradients[1] as Float64Array).forEach((each, at) => {
      expect(Math.abs((gradients[0] as Float32Array)[at]! - each)).toBeLessThan(
        64 * 2 ** -24 * largest,
      );
    });
  });
});

describe("refuses by field", () => {
  const small = transformer(shape);
  test.each<[string, () => unknown, string]>([
    ["one size", () => mlp({ sizes: [3] }), "mlp: sizes"],
    ["a size of 0", () => mlp({ sizes: [3, 0] }), "mlp: sizes[1]: found 0"],
    [
      "broken rows",
      () => mlp({ sizes: [3, 1] }).loss({ input: [1, 2], target: [1] }),
      "mlp: input",
    ],
    ["no rows", () => mlp({ sizes: [3, 1] }).loss({ input: [], target: [] }), "mlp: input"],
    ["targets", () => mlp({ sizes: [1, 1] }).loss({ input: [1], target: [1, 2] }), "mse: target"],
    ["another loss", () => mlp({ sizes: [1, 1], loss: "l1" as never }), 'loss: found "l1"'],
    ["weights of no classes", () => mlp({ sizes: [1, 1], classWeights: [1] }), "mlp: classWeights"],
    ["heads", () => transformer({ ...shape, heads: 4 }), "heads: found 4 for a width of 6"],
    ["no blocks", () => transformer({ ...shape, blocks: 0 }), "transformer: blocks: found 0"],
    [
      "blocks beyond the memory",
      () => transformer({ ...shape, blocks: 2 ** 14 + 1 }),
      "transformer: blocks: found 16385, needs an integer in 1..16384",
    ],
    ["long sequences", () => small.loss({ tokens: [0, 0, 0, 0, 0, 0], sequences: 1 }), "1 to 4"],
    ["uneven sequences", () => small.loss({ tokens: [0, 0, 0], sequences: 2 }), "sequences of 0.5"],
    ["an unknown token", () => small.loss({ tokens: [0, 5], sequences: 1 }), "tokens"],
    ["a token to read", () => small.logits([9]), "tokens[0]: found 9, needs a token from 0 to 4"],
  ])("%s", (_, act, message) => {
    expect(act).toThrow(message);
  });
});
