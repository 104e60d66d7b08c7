/**
 * The effect of an optimizer on one element, apart from the owner of that element.
 *
 * A rule is element-wise and may run on any contiguous range of the parameters. So data parallel ranks run it on all elements
 * and sharded ones on their part, with the same bits. Arithmetic is in float64. Each state array and the parameter are rounded
 * to the arrays' dtype once per update.
 */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import { type Schedule, scheduleOf } from "./schedules.ts";

/** One update of a range of elements. All arrays have the range's length and one dtype. */
export interface Update {
  /** The parameters' values; updated in place. */
  readonly value: ParameterArray;
  /** Their gradients; only read. */
  readonly gradient: ParameterArray;
  /** The rule's state arrays by slot; zeros before the first update, updated in place. */
  readonly slots: Readonly<Record<string, ParameterArray>>;
  /** Number of this update of these elements, from 1. */
  readonly step: number;
  readonly learningRate: number;
}

/** An optimizer's rule: `sgd`, `adamW`, `lion`, or one of your own. */
export interface UpdateRule {
  readonly name: string;
  /** Learning rate by number of updates done. */
  readonly schedule: Schedule;
  /** Names of the state arrays, without "/": each as long as the parameters it belongs to, and of their dtype. */
  readonly slots: readonly string[];
  /** The settings beside the rate, which `ShardedParallel.create` compares between ranks; none when left out. */
  readonly settings?: Readonly<Record<string, number | boolean | readonly number[]>> | undefined;
  /** Updates a range of elements, each independently. */
  update(update: Update): void;
}

/** The found value of an error, for one that is no update rule, such as the options of one; `undefined` for a rule. */
export function ruleFault(rule: UpdateRule): string | undefined {
  if (typeof rule?.update !== "function") return textOf(rule);
  const { schedule, slots, name } = rule;
  const hasNames = Array.isArray(slots) && slots.every((slot) => typeof slot === "string");
  if (typeof schedule !== "function") return `a rule with schedule ${textOf(schedule)}`;
  if (!hasNames) return `a rule with slots ${textOf(slots)}`;
  // In states it separates the names of parameters and slots.
  const cut = slots.find((slot) => slot.includes("/"));
  if (cut !== undefined) return `a rule with a slot ${textOf(cut)}, which has a "/"`;
  return typeof name === "string" ? undefined : `a rule with name ${textOf(name)}`;
}

/** A learning rate, fixed or scheduled. */
export type LearningRate = number | Schedule;

/** Refuses an option that is not a finite number from `least` to below `bound`. */
function assertNumber(
  rule: string,
  field: string,
  value: number,
  least: number,
  bound: number = Number.POSITIVE_INFINITY,
): void {
  if (typeof value === "number" && value >= least && value < bound) return;
  const range = bound === Number.POSITIVE_INFINITY ? "" : ` and below ${bound}`;
  throw invalid(rule, field, textOf(value), `a number of at least ${least}${range}`);
}

// Stochastic gradient descent, as `torch.optim.SGD` (minimising).

/** Options of `sgd`. Left out: no momentum, no dampening, no weight decay. */
export interface SgdOptions {
  readonly learningRate: LearningRate;
  /** Share of the last velocity that is kept. */
  readonly momentum?: number | undefined;
  /** Share of the gradient that does not enter the velocity; from the second update on. */
  readonly dampening?: number | undefined;
  /** Nesterov's momentum: looks ahead by one velocity. Needs a momentum and no dampening. */
  readonly nesterov?: boolean | undefined;
  /** Adds this share of the parameter to its gradient. */
  readonly weightDecay?: number | undefined;
}

const sgdKinds: OptionKinds<SgdOptions> = {
  ...{
    learningRate: true,
    momentum: true,
    dampening: true,
    nesterov: "boolean",
    weightDecay: true,
  },
};

/**
 * With g = gradient + weightDecay · p, the velocity is v ← momentum · v + (1 − dampening) · g, at the first update v ← g. Then
 * p ← p − rate · v; with Nesterov's momentum p ← p − rate · (g + momentum · v), without momentum p ← p − rate · g. State:
 * `velocity`, only with a momentum.
 *
 * @throws InvalidArgumentError for an option that is negative or not a number, or Nesterov's momentum without momentum
 * or with dampening.
 * @example
 * const optimizer = new Optimizer(model, sgd({ learningRate: 0.1, momentum: 0.9 }));
 */
export function sgd(options: SgdOptions): UpdateRule {
  assertOptions("sgd", options, sgdKinds);
  const { learningRate, momentum = 0, dampening = 0, nesterov = false, weightDecay = 0 } = options;
  const schedule = scheduleOf("sgd", "learningRate", learningRate);
  assertNumber("sgd", "momentum", momentum, 0);
  assertNumber("sgd", "dampening", dampening, 0);
  assertNumber("sgd", "weightDecay", weightDecay, 0);
  if (nesterov && (momentum === 0 || dampening !== 0)) {
    throw invalid(
      "sgd",
      "nesterov",
      `momentum ${momentum} and dampening ${dampening}`,
      "a momentum and no dampening",
    );
  }
  const plain = ({ value, gradient, learningRate: rate }: Update): void => {
    for (let i = 0; i < value.length; i++) {
      const p = value[i] as number;
      value[i] = p - rate * ((gradient[i] as number) + weightDecay * p);
    }
  };
  const withMomentum = (update: Update): void => {
    const { value, gradient, slots, step, learningRate: rate } = update;
    const velocity = slots["velocity"] as ParameterArray;
    const share = step === 1 ? 1 : 1 - dampening;
    for (let i = 0; i < value.length; i++) {
      const p = value[i] as number;
      const g = (gradient[i] as number) + weightDecay * p;
      velocity[i] = momentum * (velocity[i] as number) + share * g;
      const v = velocity[i] as number;
      value[i] = p - rate * (nesterov ? g + momentum * v : v);
    }
  };
  const settings = { momentum, dampening, nesterov, weightDecay };
  return momentum === 0
    ? { name: "sgd", schedule, slots: [], settings, update: plain }
    : { name: "sgd", schedule, slots: ["velocity"], settings, update: withMomentum };
}

// Adam with decoupled weight decay, as `torch.optim.AdamW` (minimising, without amsgrad).

/** Options of `adamW`; PyTorch's defaults. */
export interface AdamWOptions {
  readonly learningRate: LearningRate;
  /** Shares of the last means that are kept: of the gradient, of its square. `[0.9, 0.999]` when left out. */
  readonly betas?: readonly [number, number] | undefined;
  /** Added to the root of the mean square; 1e-8 when left out. */
  readonly epsilon?: number | undefined;
  /** Times the rate: the share of a parameter that every update subtracts. 0.01 when left out. */
  readonly weightDecay?: number | undefined;
}

const adamWKinds: OptionKinds<AdamWOptions> = {
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
  assertOptions("adamW", options, adamWKinds);
  const { learningRate, betas = [0.9, 0.999], epsilon = 1e-8, weightDecay = 0.01 } = options;
  const [beta1, beta2] = betas;
  const schedule = scheduleOf("adamW", "learningRate", learningRate);
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
  const settings = { betas: [beta1, beta2], epsilon, weightDecay };
  return { name: "adamW", schedule, slots: ["mean", "meanSquare"], settings, update };
}

// Lion, after "Symbolic Discovery of Optimization Algorithms" (https://arxiv.org/abs/2302.06675, algorithm 2). PyTorch has none; this is
// the order of operations of the authors' PyTorch version.

/** Options of `lion`; the paper's defaults. */
export interface LionOptions {
  /** The size of every step of every element; about a tenth of AdamW's. */
  readonly learningRate: LearningRate;
  /** Shares of the mean that are kept: in the direction taken, in the mean itself. `[0.9, 0.99]` when left out. */
  readonly betas?: readonly [number, number] | undefined;
  /** Times the rate: the share of a parameter that every update subtracts. 0 when left out. */
  readonly weightDecay?: number | undefined;
}

const lionKinds: OptionKinds<LionOptions> = {
  learningRate: true,
  betas: "array",
  weightDecay: true,
};

/**
 * p ← p · (1 − rate · weightDecay) − rate · sign(β₁ · m + (1 − β₁) · g); m ← β₂ · m + (1 − β₂) · g. State: `mean` (m).
 *
 * @throws InvalidArgumentError for betas outside 0 to below 1, another option that is negative or not a number.
 * @example
 * const optimizer = new Optimizer(model, lion({ learningRate: 3e-5, weightDecay: 1 }));
 */
export function lion(options: LionOptions): UpdateRule {
  assertOptions("lion", options, lionKinds);
  const { learningRate, betas = [0.9, 0.99], weightDecay = 0 } = options;
  const [beta1, beta2] = betas;
  const schedule = scheduleOf("lion", "learningRate", learningRate);
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
  const settings = { betas: [beta1, beta2], weightDecay };
  return { name: "lion", schedule, slots: ["mean"], settings, update };
}
