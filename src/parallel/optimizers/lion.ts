/**
 * Lion, after "Symbolic Discovery of Optimization Algorithms" (https://arxiv.org/abs/2302.06675, algorithm 2). PyTorch has none; this is
 * the order of operations of the authors' PyTorch version.
 */
import { assertOptions, type OptionKinds } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertNumber,
  type LearningRate,
  scheduleOf,
  type Update,
  type UpdateRule,
} from "./rule.ts";

/** Options of `lion`; the paper's defaults. */
export interface LionOptions {
  /** The size of every step of every element; about a tenth of AdamW's. */
  readonly learningRate: LearningRate;
  /** Shares of the mean that are kept: in the direction taken, in the mean itself. `[0.9, 0.99]` when left out. */
  readonly betas?: readonly [number, number] | undefined;
  /** Times the rate: the share of a parameter that every update takes away. 0 when left out. */
  readonly weightDecay?: number | undefined;
}

const kinds: OptionKinds<LionOptions> = { learningRate: true, betas: "array", weightDecay: true };

/**
 * p ← p · (1 − rate · weightDecay) − rate · sign(β₁ · m + (1 − β₁) · g); m ← β₂ · m + (1 − β₂) · g. State: `mean` (m).
 *
 * @throws InvalidArgumentError for betas outside 0 to below 1, another option that is negative or not a number.
 * @example
 * const optimizer = new Optimizer(model, lion({ learningRate: 3e-5, weightDecay: 1 }));
 */
export function lion(options: LionOptions): UpdateRule {
  assertOptions("lion", options, kinds);
  const { learningRate, betas = [0.9, 0.99], weightDecay = 0 } = options;
  const [beta1, beta2] = betas;
  const schedule = scheduleOf("lion", learningRate);
  assertNumber("lion", "betas[0]", beta1, 0, 1);
  assertNumber("lion", "betas[1]", beta2, 0, 1);
  assertNumber("lion", "weightDecay", weightDecay, 0);
  const update = ({ value, gradient, slots, learningRate: rate }: Update): void => {
    const mean = slots["mean"] as ParameterArray;
    const kept = 1 - rate * weightDecay;
    for (let i = 0; i < value.length; i++) {
      const g = gradient[i] as number;
      const m = mean[i] as number;
      value[i] = kept * (value[i] as number) - rate * Math.sign(beta1 * m + (1 - beta1) * g);
      mean[i] = beta2 * m + (1 - beta2) * g;
    }
  };
  return { name: "lion", schedule, slots: ["mean"], update };
}
