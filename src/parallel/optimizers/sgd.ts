/** Stochastic gradient descent, as `torch.optim.SGD` (minimising). */
import { assertOptions, invalid, type OptionKinds } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertNumber,
  type LearningRate,
  scheduleOf,
  type Update,
  type UpdateRule,
} from "./rule.ts";

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

const kinds: OptionKinds<SgdOptions> = {
  ...{
    learningRate: true,
    momentum: true,
    dampening: true,
    nesterov: "boolean",
    weightDecay: true,
  },
};

/**
 * With g = gradient + weightDecay · p, the velocity is v ← momentum · v + (1 − dampening) · g, at the first update v ← g;
 * p ← p − rate · v, with Nesterov's momentum p ← p − rate · (g + momentum · v), without momentum p ← p − rate · g.
 * State: `velocity`, with a momentum only.
 *
 * @throws InvalidArgumentError for an option that is negative or not a number, or Nesterov's momentum without momentum
 * or with dampening.
 * @example
 * const optimizer = new Optimizer(model, sgd({ learningRate: 0.1, momentum: 0.9 }));
 */
export function sgd(options: SgdOptions): UpdateRule {
  assertOptions("sgd", options, kinds);
  const { learningRate, momentum = 0, dampening = 0, nesterov = false, weightDecay = 0 } = options;
  const schedule = scheduleOf("sgd", learningRate);
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
  return momentum === 0
    ? { name: "sgd", schedule, slots: [], update: plain }
    : { name: "sgd", schedule, slots: ["velocity"], update: withMomentum };
}
