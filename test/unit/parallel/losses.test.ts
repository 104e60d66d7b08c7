/** Losses and their gradients: against PyTorch's recorded ones, by finite differences, at their edges. */
import { crossEntropy, DataParallel, type Loss, mse, Random } from "twinccl/parallel";
import { type MlpBatch, mlp } from "twinccl/parallel/models";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";
import {
  allowance,
  arrayOf,
  expectNear,
  type RecordedDType,
  torchRecord,
} from "../../support/torch-records.ts";

interface Case {
  readonly loss: "mse" | "crossEntropy";
  readonly name: string;
  readonly dtype: RecordedDType;
  readonly columns: number;
  readonly input: readonly number[];
  readonly target: readonly number[];
  readonly weights?: readonly number[];
  readonly value: number;
  readonly gradient: readonly number[];
}

describe("as PyTorch", () => {
  const { cases } = torchRecord<{ cases: readonly Case[] }>("losses");
  test.each(cases)("$name in $dtype", (each) => {
    const { loss, dtype, columns, target, weights } = each;
    const input = arrayOf(dtype, each.input);
    const gradient = arrayOf(dtype, each.input);
    const found =
      loss === "mse"
        ? mse({ prediction: input, target, gradient })
        : crossEntropy({
            logits: input,
            targets: target,
            classes: columns,
            gradient,
            ...(weights === undefined ? {} : { weights }),
          });
    // PyTorch computes in the dtype: a sum over rows, and logits taken from one another.
    const largest = Math.max(1, ...each.input.map(Math.abs));
    expectNear([found.value], [each.value], () => allowance(dtype, largest, 4), "the loss");
    expectNear(gradient, each.gradient, () => allowance(dtype, largest, 1), "the gradient");
  });
});

/** Central differences in float64: their own error is about 1e-9 of the loss's scale. */
function expectGradient(input: Float64Array, lossOf: () => Loss, gradient: Float64Array): void {
  const step = 1e-5;
  for (let at = 0; at < input.length; at++) {
    const kept = input[at] as number;
    input[at] = kept + step;
    const above = lossOf().value;
    input[at] = kept - step;
    const below = lossOf().value;
    input[at] = kept;
    expect(gradient[at], `element ${at}`).toBeCloseTo((above - below) / (2 * step), 8);
  }
}

const draw = (seed: number, count: number): Float64Array => {
  const random = new Random(seed);
  return Float64Array.from({ length: count }, () => 2 * random.normal());
};

describe("gradients by finite differences", () => {
  test("mse", () => {
    const [prediction, target] = [draw(1, 12), draw(2, 12)];
    const gradient = new Float64Array(12);
    mse({ prediction, target, gradient });
    expectGradient(prediction, () => mse({ prediction, target }), gradient);
  });
  test.each([undefined, [0.5, 2, 0, 3]])("cross entropy with weights %j", (weights) => {
    const logits = draw(3, 20);
    const args = {
      logits,
      targets: [3, 0, 2, 1, 3],
      classes: 4,
      ...(weights === undefined ? {} : { weights }),
    };
    const gradient = new Float64Array(20);
    crossEntropy({ ...args, gradient });
    expectGradient(logits, () => crossEntropy(args), gradient);
  });
});

describe("parts of a batch combine by weight to the whole", () => {
  const logits = draw(4, 21);
  const targets = [0, 2, 1, 1, 2, 0, 2];
  const classes = 3;
  const weights = [0.25, 4, 1];
  test("value and gradient", () => {
    const whole = new Float64Array(21);
    const all = crossEntropy({ logits, targets, classes, weights, gradient: whole });
    const joined = new Float64Array(21);
    let [value, weight] = [0, 0];
    for (const [begin, end] of [
      [0, 2],
      [2, 7],
    ] as const) {
      const gradient = joined.subarray(begin * 3, end * 3);
      const part = crossEntropy({
        logits: logits.subarray(begin * 3, end * 3),
        targets: targets.slice(begin, end),
        classes,
        weights,
        gradient,
      });
      gradient.forEach((_, at) => {
        gradient[at] = ((gradient[at] as number) * part.weight) / all.weight;
      });
      value += part.value * part.weight;
      weight += part.weight;
    }
    expect(weight).toBe(all.weight);
    expect(all.weight).toBe(0.25 * 2 + 4 * 2 + 3);
    expect(value / weight).toBeCloseTo(all.value, 14);
    joined.forEach((each, at) => {
      expect(each).toBeCloseTo(whole[at] as number, 14);
    });
  });
  test("mse weighs elements", () => {
    expect(mse({ prediction: new Float64Array([1, 3]), target: [0, 1] })).toEqual({
      value: 2.5,
      weight: 2,
    });
  });
});

test("a sum is the mean times the weight, not divided", () => {
  const logits = draw(6, 6);
  const [mean, sum] = [new Float64Array(6), new Float64Array(6)];
  const args = { logits, targets: [0, 2], classes: 3, weights: [1, 1, 3] };
  const loss = crossEntropy({ ...args, gradient: mean });
  const total = crossEntropy({ ...args, gradient: sum, reduction: "sum" });
  expect(total).toEqual({ value: expect.closeTo(loss.value * 4, 12), weight: 4 });
  sum.forEach((each, at) => {
    expect(each).toBeCloseTo((mean[at] as number) * 4, 12);
  });
  const gradient = new Float64Array(2);
  const prediction = new Float64Array([1, 3]);
  expect(mse({ prediction, target: [0, 1], gradient, reduction: "sum" })).toEqual({
    value: 5,
    weight: 2,
  });
  expect([...gradient]).toEqual([2, 4]);
});

test("a sum over targets that weigh nothing is zero, as the part of one rank", async () => {
  const gradient = new Float64Array(6).fill(7);
  const args = { logits: draw(6, 6), targets: [0, 1], classes: 3, weights: [0, 0, 1], gradient };
  expect(crossEntropy({ ...args, reduction: "sum" })).toEqual({ value: 0, weight: 0 });
  expect(gradient.every((each) => each === 0)).toBe(true);

  // The second rank of two has such targets alone: the step is that of one rank with all samples.
  const one = await weightedStep([{ input: [1, 2, 3, 4], target: [0, 1, 1, 1] }]);
  const two = await weightedStep([
    { input: [1, 2], target: [0, 1] },
    { input: [3, 4], target: [1, 1] },
  ]);
  expect(two[1]).toEqual(two[0]);
  expect(two[0]!.weight).toBe(1);
  expect(two[0]!.loss).toBeCloseTo(one[0]!.loss, 12);
  two[0]!.gradient.forEach((each, at) => {
    expect(each).toBeCloseTo(one[0]!.gradient[at]!, 12);
  });
});

/** One step of a classifier whose second class weighs nothing, with a batch for each rank. */
function weightedStep(batches: readonly MlpBatch[]) {
  return inWorld(batches.length, async (comm) => {
    const classWeights = [1, 0];
    const model = mlp({ sizes: [1, 2], loss: "crossEntropy", classWeights, dtype: "float64" });
    const trainer = await DataParallel.create(comm, model.parameters);
    const { loss, weight } = await trainer.step([batches[comm.rank]!], model.backward);
    return { loss, weight, gradient: [...model.parameters.gradients("float64")] };
  });
}

test("the gradient may be written over its input", () => {
  const logits = draw(5, 6);
  const apart = new Float64Array(6);
  crossEntropy({ logits, targets: [0, 2], classes: 3, gradient: apart });
  crossEntropy({ logits, targets: [0, 2], classes: 3, gradient: logits });
  expect(logits).toEqual(apart);
});

test("no logit overflows, and equal logits give the logarithm of the classes", () => {
  const large = new Float32Array([1e30, 0, -1e30]);
  const gradient = new Float32Array(3);
  expect(crossEntropy({ logits: large, targets: [0], classes: 3, gradient }).value).toBe(0);
  expect([...gradient]).toEqual([0, 0, 0]);
  const equal = new Float64Array(8).fill(1e6);
  expect(crossEntropy({ logits: equal, targets: [1, 3], classes: 4 }).value).toBe(Math.log(4));
});

describe("refuses by field, writing nothing", () => {
  const logits = new Float64Array(6);
  const gradient = new Float64Array(6).fill(7);
  const base = { logits, targets: [0, 1], classes: 3, gradient };
  test.each([
    ["targets", { targets: [0, 3] }, "targets[1]: found 3, needs a class from 0 to 2"],
    ["targets", { targets: [0.5, 1] }, "targets[0]"],
    ["targets", { targets: [] }, "no rows"],
    ["logits", { targets: [0] }, "logits: found 6 elements, needs 3"],
    ["classes", { classes: 0 }, "classes"],
    ["weights", { weights: [1, 1] }, "weights: found 2 elements, needs 3"],
    ["a weight", { weights: [1, 1, -1] }, "weights[2]: found -1"],
    ["a weight", { weights: [1, Number.NaN, 1] }, "weights[1]: found NaN"],
    ["weights that are all zero here", { weights: [0, 0, 1] }, "0 for every target"],
    ["gradient", { gradient: new Float64Array(5) }, "gradient: found 5 elements, needs 6"],
  ])("%s", (_, change, message) => {
    expect(() => crossEntropy({ ...base, ...change })).toThrow(message);
    expect(gradient).toEqual(new Float64Array(6).fill(7));
  });
  test("mse", () => {
    const prediction = new Float64Array(2);
    expect(() => mse({ prediction, target: [1] })).toThrow("target: found 1 elements, needs 2");
    expect(() => mse({ prediction: new Float64Array(0), target: [] })).toThrow("prediction");
  });
});
