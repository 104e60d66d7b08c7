/** Adam with decoupled weight decay, as `torch.optim.AdamW` (minimising, without amsgrad). */
import { assertOptions, type OptionKinds } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertNumber,
  type LearningRate,
  scheduleOf,
  type Update,
  type UpdateRule,
} from "./rule.ts";

/** Options of `adamW`; PyTorch's defaults. */
export interface AdamWOptions {
  readonly learningRate: LearningRate;
  /** Shares of the last means that are kept: of the gradient, of its square. `[0.9, 0.999]` when left out. */
  readonly betas?: readonly [number, number] | undefined;
  /** Added to the root of the mean square; 1e-8 when left out. */
  readonly epsilon?: number | undefined;
  /** Times the rate: the share of a parameter that every update takes away. 0.01 when left out. */
  readonly weightDecay?: number | undefined;
}

const kinds: OptionKinds<AdamWOptions> = {
  ...{ learningRate: true, betas: "array", epsilon: true, weightDecay: true },
};

/**
 * p ← p · (1 − rate · weightDecay); m ← m + (1 − β₁)(g − m); v ← β₂ · v + (1 − β₂) · g²;
 * p ← p − rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε), with t the number of the update.
 * State: `mean` (m) and `meanSquare` (v).
 *
 * @throws InvalidArgumentError for betas outside 0 to below 1, another option that is negative or not a number.
 * @example
 * const optimizer = new Optimizer(model, adamW({ learningRate: 3e-4, weightDecay: 0.1 }));
 */
export function adamW(options: AdamWOptions): UpdateRule {
  assertOptions("adamW", options, kinds);
  const { learningRate, betas = [0.9, 0.999], epsilon = 1e-8, weightDecay = 0.01 } = options;
  const [beta1, beta2] = betas;
  const schedule = scheduleOf("adamW", learningRate);
  assertNumber("adamW", "betas[0]", beta1, 0, 1);
  assertNumber("adamW", "betas[1]", beta2, 0, 1);
  assertNumber("adamW", "epsilon", epsilon, 0);
  assertNumber("adamW", "weightDecay", weightDecay, 0);
  const update = ({ value, gradient, slots, step, learningRate: rate }: Update): void => {
    const mean = slots["mean"] as ParameterArray;
    const meanSquare = slots["meanSquare"] as ParameterArray;
    const size = rate / (1 - beta1 ** step);
    const root = Math.sqrt(1 - beta2 ** step);
    const kept = 1 - rate * weightDecay;
    for (let i = 0; i < value.length; i++) {
      const g = gradient[i] as number;
      const m = mean[i] as number;
      mean[i] = m + (1 - beta1) * (g - m);
      meanSquare[i] = beta2 * (meanSquare[i] as number) + (1 - beta2) * g * g;
      const divisor = Math.sqrt(meanSquare[i] as number) / root + epsilon;
      value[i] = kept * (value[i] as number) - size * ((mean[i] as number) / divisor);
    }
  };
  return { name: "adamW", schedule, slots: ["mean", "meanSquare"], update };
}
