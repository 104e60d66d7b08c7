/** A multilayer perceptron: linear layers with tanh between them. */
import type { MicroBatch } from "../data-parallel/backward.ts";
import { tanh } from "../layers/activation.ts";
import { type Layer, type Pass, sequence, type TakeGradient, zerosLike } from "../layers/layer.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import type { Loss } from "../losses/loss.ts";
import { mse } from "../losses/mse.ts";
import { type ParameterArray, ParameterSet } from "../parameter-set.ts";
import {
  assertCount,
  Initial,
  type Model,
  type ModelOptions,
  refusal,
  weightsOf,
} from "./model.ts";

/** Options of `mlp`. */
export interface MlpOptions extends ModelOptions {
  /** Width of the input, of every hidden layer, and of the output. */
  readonly sizes: readonly number[];
  /** `mse` when left out; `crossEntropy` takes the outputs as logits. */
  readonly loss?: "mse" | "crossEntropy";
  /** Weight of each class, for `crossEntropy`. */
  readonly classWeights?: ArrayLike<number>;
}

/** Some samples. */
export interface MlpBatch {
  /** Rows of inputs. */
  readonly input: ArrayLike<number>;
  /** Rows of outputs for `mse`; one class a row for `crossEntropy`. */
  readonly target: ArrayLike<number>;
}

/**
 * Parameters are `layer0.weight` [outputs, inputs], `layer0.bias` [outputs] and so on, drawn evenly up to 1 / √inputs.
 *
 * @throws InvalidArgumentError for sizes that are none; by `loss` and `backward`, for a batch that is no whole rows.
 * @example
 * const model = mlp({ sizes: [2, 16, 1], seed: 7 });
 */
export function mlp(options: MlpOptions): Model<MlpBatch> {
  const { sizes, loss = "mse", classWeights } = options;
  if (sizes.length < 2) throw refusal("mlp", "sizes", `${sizes.length} of them`, "at least 2");
  for (const [at, size] of sizes.entries()) assertCount("mlp", `sizes[${at}]`, size);
  const { parameters, network } = build(options);
  const [inputs, outputs] = [sizes[0] as number, sizes.at(-1) as number];

  const forward = ({ input }: MlpBatch): { pass: Pass; rows: number } => {
    const rows = input.length / inputs;
    if (!Number.isInteger(rows) || rows === 0) {
      throw refusal("mlp", "input", `${input.length} numbers`, `whole rows of ${inputs}`);
    }
    const own = zerosLike([...parameters][0]?.value as ParameterArray, input.length);
    own.set(input);
    return { pass: network.forward(own, { sequences: rows, length: 1 }), rows };
  };
  const lossOf = (
    output: ParameterArray,
    target: ArrayLike<number>,
    out?: ParameterArray,
  ): Loss => {
    const common = { ...(out === undefined ? {} : { gradient: out }), reduction: "sum" } as const;
    if (loss === "mse") return mse({ prediction: output, target, ...common });
    const weights = classWeights === undefined ? {} : { weights: classWeights };
    return crossEntropy({
      logits: output,
      targets: target,
      classes: outputs,
      ...weights,
      ...common,
    });
  };
  return {
    parameters,
    loss(batch): MicroBatch {
      const { pass, rows } = forward(batch);
      const { value, weight } = lossOf(pass.output, batch.target);
      return { loss: value, samples: rows, weight };
    },
    backward(batch, take: TakeGradient): MicroBatch {
      const { pass, rows } = forward(batch);
      const gradient = zerosLike(pass.output, pass.output.length);
      const { value, weight } = lossOf(pass.output, batch.target, gradient);
      pass.backward(gradient, take);
      return { loss: value, samples: rows, weight };
    },
  };
}

function build(options: MlpOptions): { parameters: ParameterSet; network: Layer } {
  const widths = options.sizes.slice(0, -1).map((inputs, at) => ({
    name: `layer${at}`,
    inputs,
    outputs: options.sizes[at + 1] as number,
  }));
  const initial = new Initial(options);
  for (const { name, inputs, outputs } of widths) {
    initial.uniform(`${name}.weight`, [outputs, inputs], 1 / Math.sqrt(inputs));
    initial.uniform(`${name}.bias`, [outputs], 1 / Math.sqrt(inputs));
  }
  const parameters = new ParameterSet(initial.declarations);
  const get = weightsOf(parameters);
  const layers = widths.flatMap(({ name, inputs, outputs }, at) => {
    const parts = { weight: get(`${name}.weight`), bias: get(`${name}.bias`), inputs, outputs };
    return at === 0 ? [linear(parts)] : [tanh(), linear(parts)];
  });
  return { parameters, network: sequence(layers) };
}
