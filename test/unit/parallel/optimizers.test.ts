/** Update rules against PyTorch's recorded trajectories and by hand, on shards, through interruptions, and misused. */
import {
  adamW,
  cosine,
  lion,
  Optimizer,
  ParameterSet,
  Random,
  type State,
  sgd,
  type Trainable,
  type UpdateRule,
} from "twinccl/parallel";
import { describe, expect, test } from "vitest";
import {
  allowance,
  arrayOf,
  expectNear,
  type RecordedDType,
  torchRecord,
} from "../../support/torch-records.ts";

interface Options {
  readonly lr: number;
  readonly momentum?: number;
  readonly dampening?: number;
  readonly nesterov?: boolean;
  readonly weight_decay?: number;
  readonly betas?: [number, number];
  readonly eps?: number;
}

interface Records {
  readonly initial: readonly number[];
  readonly gradients: readonly (readonly number[])[];
  readonly cases: readonly {
    readonly name: string;
    readonly rule: "sgd" | "adamw" | "lion";
    readonly options: Options;
    readonly dtype: RecordedDType;
    readonly trajectory: readonly (readonly number[])[];
    readonly state: Readonly<Record<string, readonly number[]>>;
  }[];
}

const slotNames: Readonly<Record<string, string>> = {
  momentum_buffer: "velocity",
  exp_avg: "mean",
  exp_avg_sq: "meanSquare",
};

function ruleOf(rule: string, options: Options): UpdateRule {
  const { lr, momentum, dampening, nesterov, weight_decay = 0, betas, eps } = options;
  const common = { learningRate: lr, weightDecay: weight_decay };
  if (rule === "sgd") {
    return sgd({
      ...common,
      ...(momentum === undefined ? {} : { momentum }),
      ...(dampening === undefined ? {} : { dampening }),
      ...(nesterov === undefined ? {} : { nesterov }),
    });
  }
  const kept = betas === undefined ? {} : { betas };
  if (rule === "lion") return lion({ ...common, ...kept });
  return adamW({ ...common, ...kept, ...(eps === undefined ? {} : { epsilon: eps }) });
}

describe("as PyTorch", () => {
  const { initial, gradients, cases } = torchRecord<Records>("optimizers");
  test.each(cases)("$name in $dtype", ({ rule, options, dtype, trajectory, state }) => {
    const value = arrayOf(dtype, initial);
    const gradient = arrayOf(dtype, value);
    const parameter: Trainable = { name: "p", dtype, shape: [value.length], value, gradient };
    const optimizer = new Optimizer([parameter], ruleOf(rule, options));
    const largest = [...initial].map(Math.abs);
    for (const [step, expected] of trajectory.entries()) {
      gradient.set(gradients[step] as readonly number[]);
      optimizer.step();
      expected.forEach((each, at) => {
        largest[at] = Math.max(largest[at] as number, Math.abs(each));
      });
      const allowed = (at: number): number => allowance(dtype, largest[at] as number, step + 1);
      expectNear(value, expected, allowed, `after step ${step + 1}`);
    }
    const { tensors } = optimizer.state();
    expect(Object.keys(tensors).sort()).toEqual(
      Object.keys(state)
        .map((name) => `p/${slotNames[name]}`)
        .sort(),
    );
    const steepest = initial.map((_, at) => Math.max(...gradients.map((g) => Math.abs(g[at]!)), 1));
    for (const [name, expected] of Object.entries(state)) {
      const power = name === "exp_avg_sq" ? 2 : 1;
      const allowed = (at: number): number =>
        allowance(dtype, steepest[at]! ** power, trajectory.length);
      const found = tensors[`p/${slotNames[name]}`]?.data as Float64Array;
      expectNear(found, expected, allowed, name);
    }
  });
});

/** Every rule with all its options at work. */
const rules: Readonly<Record<string, () => UpdateRule>> = {
  sgd: () => sgd({ learningRate: 0.1 }),
  "sgd with momentum": () =>
    sgd({ learningRate: 0.1, momentum: 0.9, dampening: 0.25, weightDecay: 0.1 }),
  "sgd with Nesterov's": () => sgd({ learningRate: 0.1, momentum: 0.5, nesterov: true }),
  adamW: () => adamW({ learningRate: cosine({ peak: 0.1, steps: 9 }) }),
  lion: () => lion({ learningRate: 0.1, weightDecay: 0.1 }),
};

describe("by hand", () => {
  const updated = (rule: UpdateRule, gradients: number[]): number => {
    const set = new ParameterSet([{ name: "p", dtype: "float64", shape: [1], values: [1] }]);
    const optimizer = new Optimizer(set, rule);
    for (const gradient of gradients) {
      set.get("p").gradient[0] = gradient;
      optimizer.step();
    }
    return set.get("p").value[0] as number;
  };
  test("sgd", () => {
    expect(updated(sgd({ learningRate: 0.5 }), [0.25])).toBe(1 - 0.5 * 0.25);
    expect(updated(sgd({ learningRate: 0.5, weightDecay: 0.5 }), [0.25])).toBe(1 - 0.5 * 0.75);
  });
  test("momentum: the first velocity is the gradient, dampening begins with the second", () => {
    const rule = sgd({ learningRate: 1, momentum: 0.5, dampening: 0.75 });
    expect(updated(rule, [0.25, 0.5])).toBe(1 - 0.25 - (0.5 * 0.25 + 0.25 * 0.5));
  });
  test("Nesterov's momentum looks one velocity ahead", () => {
    const rule = sgd({ learningRate: 1, momentum: 0.5, nesterov: true });
    expect(updated(rule, [0.25])).toBe(1 - (0.25 + 0.5 * 0.25));
  });
  test("adamW: the first step is the rate, whatever the gradient's size, and decay is apart", () => {
    const rule = (): UpdateRule => adamW({ learningRate: 0.25, epsilon: 0, weightDecay: 0.5 });
    expect(updated(rule(), [1e-3])).toBeCloseTo(1 - 0.125 - 0.25, 12);
    expect(updated(rule(), [-1e3])).toBeCloseTo(1 - 0.125 + 0.25, 12);
  });
  test("lion: steps have the rate's size, and are zero for a gradient of 0", () => {
    expect(updated(lion({ learningRate: 0.25 }), [1e-9])).toBe(0.75);
    expect(updated(lion({ learningRate: 0.25 }), [0])).toBe(1);
  });
  test("lion: the direction keeps less of the mean than the mean itself does", () => {
    const rule = lion({ learningRate: 0.25, betas: [0.25, 0.5] });
    expect(updated(rule, [1, -0.2])).toBe(1 - 0.25 + 0.25);
  });
});

const shapes = [
  { name: "b", shape: [7] },
  { name: "a", shape: [3, 5] },
  { name: "c", shape: [] },
];

function modelOf(dtype: RecordedDType): ParameterSet {
  const random = new Random(5);
  return new ParameterSet(
    shapes.map(({ name, shape }) => {
      const count = shape.reduce((product, each) => product * each, 1);
      return { name, shape, dtype, values: Array.from({ length: count }, () => random.normal()) };
    }),
  );
}

function drawGradients(set: ParameterSet, dtype: RecordedDType, step: number): void {
  const random = new Random(9, step);
  set.gradients(dtype).forEach((_, at, all) => {
    all[at] = random.normal();
  });
}

describe.each(["float32", "float64"] as const)("in %s", (dtype) => {
  test.each(Object.entries(rules))(
    "%s on any shards of the flat range gives the same bits",
    (_, rule) => {
      const whole = modelOf(dtype);
      const cut = modelOf(dtype);
      const bounds = [0, 1, 8, 8, 20, 23];
      const shards = bounds.slice(1).map((end, at): Trainable => {
        const begin = bounds[at] as number;
        const value = cut.values(dtype).subarray(begin, end);
        const gradient = cut.gradients(dtype).subarray(begin, end);
        return { name: `shard ${at}`, dtype, shape: [end - begin], value, gradient };
      });
      const first = new Optimizer(whole, rule());
      const second = new Optimizer(shards, rule());
      for (let step = 0; step < 6; step++) {
        drawGradients(whole, dtype, step);
        drawGradients(cut, dtype, step);
        first.step();
        second.step();
      }
      expect(cut.values(dtype)).toEqual(whole.values(dtype));
      expect(whole.values(dtype)).not.toEqual(modelOf(dtype).values(dtype));
    },
  );

  test.each(Object.entries(rules))(
    "%s continues after an interruption with the same bits",
    (_, rule) => {
      const straight = modelOf(dtype);
      const optimizer = new Optimizer(straight, rule());
      let kept: { model: State; optimizer: State } | undefined;
      for (let step = 0; step < 8; step++) {
        if (step === 3) {
          kept = structuredClone({ model: straight.state(), optimizer: optimizer.state() });
        }
        drawGradients(straight, dtype, step);
        optimizer.step({ skip: step === 1 ? ["b"] : [] });
      }
      const resumed = modelOf(dtype);
      const second = new Optimizer(resumed, rule());
      resumed.restore((kept as NonNullable<typeof kept>).model);
      second.restore((kept as NonNullable<typeof kept>).optimizer);
      for (let step = 3; step < 8; step++) {
        drawGradients(resumed, dtype, step);
        second.step();
      }
      expect(second.steps).toBe(8);
      expect(resumed.values(dtype)).toEqual(straight.values(dtype));
      expect(second.state()).toEqual(optimizer.state());
    },
  );
});

test("a skipped parameter keeps its value, its state and its count", () => {
  const set = modelOf("float64");
  const optimizer = new Optimizer(set, adamW({ learningRate: 0.1 }));
  drawGradients(set, "float64", 0);
  const before = set.get("b").value.slice();
  optimizer.step({ skip: ["b"] });
  expect(set.get("b").value).toEqual(before);
  expect(optimizer.state().values["updates"]).toEqual({ a: 1, b: 0, c: 1 });
  expect(optimizer.state().tensors["b/mean"]?.data).toEqual(new Float64Array(7));
  expect(set.get("a").value).not.toEqual(modelOf("float64").get("a").value);
  // Its first update is a first one, whatever others have had: the means are corrected by its own count.
  optimizer.step();
  const late = modelOf("float64");
  drawGradients(late, "float64", 0);
  new Optimizer(late, adamW({ learningRate: 0.1 })).step();
  expect(set.get("b").value).toEqual(late.get("b").value);
  expect(optimizer.state().values["updates"]).toEqual({ a: 2, b: 1, c: 2 });
});

test("a rule may be chosen by parameter", () => {
  const set = modelOf("float64");
  const optimizer = new Optimizer(set, ({ shape }) =>
    shape.length === 2 ? adamW({ learningRate: 0.25 }) : sgd({ learningRate: 0.5 }),
  );
  expect(Object.keys(optimizer.state().tensors)).toEqual(["a/mean", "a/meanSquare"]);
  expect(optimizer.stateBytes).toBe(2 * 15 * 8);
  expect([optimizer.learningRate("a"), optimizer.learningRate("b")]).toEqual([0.25, 0.5]);
});

describe("refuses", () => {
  const at = (length: number): Trainable => ({
    name: "w",
    dtype: "float32",
    shape: [4],
    value: new Float32Array(4),
    gradient: new Float32Array(length),
  });
  test("a gradient of another length or dtype, by name", () => {
    for (const length of [3, 5]) {
      expect(() => new Optimizer([at(length)], sgd({ learningRate: 1 }))).toThrow(
        `optimizer: w: found a gradient of float32 with ${length} elements, needs float32 with 4 elements`,
      );
    }
    const mixed = { ...at(4), gradient: new Float64Array(4) };
    expect(() => new Optimizer([mixed], sgd({ learningRate: 1 }))).toThrow(/float64 with 4/);
  });
  test("a name that is taken, or that no parameter has", () => {
    expect(() => new Optimizer([at(4), at(4)], sgd({ learningRate: 1 }))).toThrow(/taken/);
    const optimizer = new Optimizer([at(4)], sgd({ learningRate: 1 }));
    expect(() => optimizer.step({ skip: ["v"] })).toThrow("v: found a name that no");
    expect(optimizer.steps).toBe(0);
  });
  test("invalid options", () => {
    expect(() => sgd({ learningRate: -1 })).toThrow(/learningRate: found -1/);
    expect(() => sgd({ learningRate: Number.NaN })).toThrow(/learningRate: found NaN/);
    expect(() => sgd({ learningRate: 1, momentum: -0.5 })).toThrow(/momentum/);
    expect(() => sgd({ learningRate: 1, nesterov: true })).toThrow(/nesterov/);
    const both = { momentum: 0.9, dampening: 0.1, nesterov: true };
    expect(() => sgd({ learningRate: 1, ...both })).toThrow(/nesterov/);
    expect(() => adamW({ learningRate: 1, betas: [0.9, 1] })).toThrow(/betas\[1\].*below 1/);
    expect(() => lion({ learningRate: 1, weightDecay: -1 })).toThrow(/weightDecay/);
  });
  test("a schedule without a rate, before any change", () => {
    const set = modelOf("float64");
    const optimizer = new Optimizer(set, sgd({ learningRate: () => Number.NaN }));
    expect(() => optimizer.step()).toThrow(/the schedule gave NaN for step 0/);
    expect(set.values("float64")).toEqual(modelOf("float64").values("float64"));
  });
  test("the state of another rule or another model, before any change", () => {
    const optimizer = new Optimizer(modelOf("float64"), rules["adamW"]!());
    const before = structuredClone(optimizer.state());
    const others = [
      new Optimizer(modelOf("float64"), rules["lion"]!()).state(),
      // The same arrays under another name mean something else.
      new Optimizer(modelOf("float64"), { ...rules["adamW"]!(), name: "other" }).state(),
      new Optimizer(modelOf("float32"), rules["adamW"]!()).state(),
      new Optimizer([...modelOf("float64")].slice(1), rules["adamW"]!()).state(),
      {
        values: before.values,
        tensors: { ...before.tensors, "d/mean": before.tensors["c/mean"]! },
      },
      { values: { ...before.values, steps: -1 }, tensors: before.tensors },
      { values: {}, tensors: {} },
    ];
    for (const other of others) expect(() => optimizer.restore(other)).toThrow(/optimizer: /);
    expect(optimizer.state()).toEqual(before);
  });
});
