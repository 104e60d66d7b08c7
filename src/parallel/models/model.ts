/** The common interface of the small models: parameters, a loss, and a backward for `DataParallel`. */
import { integer, type OptionKinds, oneOf } from "../../api/option-kinds.ts";
import { assertGradient, type MicroBatch } from "../data-parallel/backward.ts";
import type { TakeGradient, Weights } from "../layers/layer.ts";
import {
  checkedZeros,
  type ParameterDeclaration,
  type ParameterDType,
  type ParameterSet,
} from "../parameter-set.ts";
import { Random } from "../random.ts";
import { elementsOf } from "../state.ts";

/** A model that can be trained. */
export interface Model<Batch> {
  /** Declared in the order of use. */
  readonly parameters: ParameterSet;
  /** Sum of the losses over a batch, its samples and their weight. */
  loss(batch: Batch): MicroBatch;
  /**
   * The same, and the gradient of that sum by every parameter, reported once each, last used first.
   *
   * @example
   * await trainer.step([batch], (each, ready) => model.backward(each, ready));
   */
  backward(batch: Batch, take: TakeGradient): MicroBatch;
}

/** The stage and the number of stages: a pipeline's communicator is one. */
export interface StagePlace {
  readonly rank: number;
  readonly size: number;
}

/** The arguments of every model. */
export interface ModelOptions {
  /** `float32` when left out. */
  readonly dtype?: ParameterDType | undefined;
  /** Fixes the initial values, with each parameter's name; 0 when left out. */
  readonly seed?: number | undefined;
}

/** The kinds of these options, for the tables of models. */
export const modelKinds: OptionKinds<ModelOptions> = {
  dtype: oneOf(["float32", "float64"]),
  seed: integer(Number.MIN_SAFE_INTEGER),
};

/**
 * Adds gradients to those of the parameters: for training without a communicator.
 *
 * @example
 * const { loss, weight } = model.backward(batch, addTo(model.parameters));
 */
export function addTo(parameters: ParameterSet): TakeGradient {
  return (name, gradient) => {
    const parameter = parameters.get(name);
    assertGradient(parameter, gradient, 1);
    const sum = parameter.gradient;
    for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (gradient[i] as number);
  };
}

/** Declares parameters with initial values that depend on the seed and their own name alone, so none shifts another's. */
export class Initial {
  readonly declarations: ParameterDeclaration[] = [];
  readonly #dtype: ParameterDType;
  readonly #seed: number;

  constructor({ dtype = "float32", seed = 0 }: ModelOptions) {
    this.#dtype = dtype;
    this.#seed = seed;
  }

  /** Evenly between -bound and bound. */
  uniform(name: string, shape: readonly number[], bound: number): void {
    this.#draw(name, shape, (random) => bound * (2 * random.uniform() - 1));
  }

  /** Normally distributed around 0. */
  normal(name: string, shape: readonly number[], deviation: number): void {
    this.#draw(name, shape, (random) => deviation * random.normal());
  }

  /** One value everywhere. */
  fill(name: string, shape: readonly number[], value: number): void {
    this.#draw(name, shape, () => value);
  }

  #draw(name: string, shape: readonly number[], next: (random: Random) => number): void {
    const key = Array.from(name, (character) => character.codePointAt(0) as number);
    const random = new Random(this.#seed, ...key);
    const values = checkedZeros(this.#dtype, elementsOf(shape));
    for (let at = 0; at < values.length; at++) values[at] = next(random);
    this.declarations.push({ name, shape, dtype: this.#dtype, values });
  }
}

/** The parameter of a name, for layers. */
export function weightsOf(parameters: ParameterSet): (name: string) => Weights {
  return (name) => parameters.get(name);
}
