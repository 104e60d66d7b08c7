/** A multilayer perceptron: linear layers with tanh between them. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import { assertCount, assertOneOf } from "../argument-checks.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import { tanh } from "../layers/activation.ts";
import { type Layer, type Pass, sequence, type TakeGradient, zerosLike } from "../layers/layer.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy, type Loss, mse } from "../losses.ts";
import { type ParameterArray, ParameterSet } from "../parameter-set.ts";
import type { Stage } from "../pipeline/stage.ts";
import { replicated, visitedSequence } from "../tensor/sharded.ts";
import { type Part, partOf } from "../tensor/split.ts";
import {
  Initial,
  type Model,
  type ModelOptions,
  modelKinds,
  type StagePlace,
  weightsOf,
} from "./model.ts";

/** Options of `mlp`. */
export interface MlpOptions extends ModelOptions {
  /** Width of the input, of every hidden layer, and of the output. */
  readonly sizes: readonly number[];
  /** `mse` when left out; `crossEntropy` takes the outputs as logits. */
  readonly loss?: "mse" | "crossEntropy" | undefined;
  /** Weight of each class, for `crossEntropy`. */
  readonly classWeights?: ArrayLike<number> | undefined;
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
 * @throws InvalidArgumentError for invalid sizes, an unknown loss, or class weights without classes; by `loss` and `backward`,
 * for a batch without whole rows.
 * @example
 * const model = mlp({ sizes: [2, 16, 1], seed: 7 });
 */
export function mlp(options: MlpOptions): Model<MlpBatch> {
  assertMlp(options);
  const { sizes } = options;
  const { parameters, layers } = layersOf(options, { begin: 0, end: sizes.length - 1 });
  const network = sequence([...layers.values()]);
  const forward = (batch: MlpBatch): { pass: Pass; rows: number } => {
    const rows = rowsIn(options, batch);
    const input = inputOf(options, batch);
    return { pass: network.forward(input, { sequences: rows, length: 1 }), rows };
  };
  return {
    parameters,
    loss(batch): MicroBatch {
      const { pass, rows } = forward(batch);
      const { value, weight } = lossOf(options, pass.output, batch.target);
      return { loss: value, samples: rows, weight };
    },
    backward(batch, take: TakeGradient): MicroBatch {
      const { pass, rows } = forward(batch);
      const gradient = zerosLike(pass.output, pass.output.length);
      const { value, weight } = lossOf(options, pass.output, batch.target, gradient);
      pass.backward(gradient, take);
      return { loss: value, samples: rows, weight };
    },
  };
}

/**
 * The part of the same perceptron for stage `rank` of `size`: whole linear layers; in an uneven division the first stages have
 * one more. A stage without a layer passes its input on. Initial values are those of `mlp`.
 *
 * @throws InvalidArgumentError as `mlp`.
 * @example
 * const stage = mlpStage(comm, { sizes: [2, 16, 16, 1], seed: 7 });
 * const pipeline = await PipelineParallel.create(comm, stage);
 */
export function mlpStage(
  place: StagePlace,
  options: MlpOptions,
): Stage<MlpBatch> & { readonly parameters: ParameterSet } {
  assertMlp(options);
  const part = partOf(options.sizes.length - 1, place);
  const { parameters, layers } = layersOf(options, part);
  const named = [...layers].map(([name, layer]) => [name, replicated(layer)] as const);
  const inputs = options.sizes[part.begin] as number;
  const isLast = place.rank === place.size - 1;
  return {
    parameters,
    inputLength: (batch) => rowsIn(options, batch) * inputs,
    async forward(batch, received, visit) {
      const rows = rowsIn(options, batch);
      const input = received ?? inputOf(options, batch);
      const network = visitedSequence(named, visit);
      const { output, backward } = await network.forward(input, { sequences: rows, length: 1 });
      if (!isLast)
        return { output, backward: (above, take) => backward(above as ParameterArray, take) };
      const gradient = zerosLike(output, output.length);
      const { value, weight } = lossOf(options, output, batch.target, gradient);
      return {
        totals: { loss: value, samples: rows, weight },
        backward: (_, take) => backward(gradient, take),
      };
    },
  };
}

const kinds: OptionKinds<MlpOptions> = {
  ...{ sizes: "array", loss: true, classWeights: true },
  ...modelKinds,
};

function assertMlp(options: MlpOptions): void {
  assertOptions("mlp", options, kinds);
  const { sizes = [], loss = "mse", classWeights } = options;
  if (sizes.length < 2) throw invalid("mlp", "sizes", `${sizes.length} of them`, "at least 2");
  for (const [at, size] of sizes.entries()) assertCount("mlp", `sizes[${at}]`, size, 1);
  assertOneOf("mlp", "loss", loss, ["mse", "crossEntropy"]);
  if (loss === "mse" && classWeights !== undefined) {
    throw invalid("mlp", "classWeights", "some with mse", "none, or crossEntropy");
  }
}

function rowsIn({ sizes }: MlpOptions, batch: MlpBatch): number {
  const { input } = batch ?? {};
  if (typeof input !== "object" || typeof input?.length !== "number") {
    const needed = "an array of numbers: a batch is { input, target }";
    throw invalid("mlp", "input", textOf(input), needed);
  }
  const inputs = sizes[0] as number;
  const rows = input.length / inputs;
  if (Number.isInteger(rows) && rows > 0) return rows;
  throw invalid("mlp", "input", `${input.length} numbers`, `whole rows of ${inputs}`);
}

function inputOf({ dtype = "float32" }: MlpOptions, { input }: MlpBatch): ParameterArray {
  return dtype === "float32" ? Float32Array.from(input) : Float64Array.from(input);
}

function lossOf(
  { sizes, loss = "mse", classWeights }: MlpOptions,
  output: ParameterArray,
  target: ArrayLike<number>,
  out?: ParameterArray,
): Loss {
  const common = { ...(out === undefined ? {} : { gradient: out }), reduction: "sum" } as const;
  if (loss === "mse") return mse({ prediction: output, target, ...common });
  const weights = classWeights === undefined ? {} : { weights: classWeights };
  const classes = sizes.at(-1) as number;
  return crossEntropy({ logits: output, targets: target, classes, ...weights, ...common });
}

/** The linear layers of a part by name, with the tanh before each but the model's first. */
function layersOf(
  options: MlpOptions,
  { begin, end }: Part,
): { parameters: ParameterSet; layers: ReadonlyMap<string, Layer> } {
  const widths = options.sizes.slice(begin, end).map((inputs, at) => ({
    name: `layer${begin + at}`,
    inputs,
    outputs: options.sizes[begin + at + 1] as number,
  }));
  const initial = new Initial(options);
  for (const { name, inputs, outputs } of widths) {
    initial.uniform(`${name}.weight`, [outputs, inputs], 1 / Math.sqrt(inputs));
    initial.uniform(`${name}.bias`, [outputs], 1 / Math.sqrt(inputs));
  }
  const parameters = new ParameterSet(initial.declarations);
  const get = weightsOf(parameters);
  const layers = widths.map(({ name, inputs, outputs }, at): [string, Layer] => {
    const dense = linear({
      weight: get(`${name}.weight`),
      bias: get(`${name}.bias`),
      inputs,
      outputs,
    });
    return [name, begin + at === 0 ? dense : sequence([tanh(), dense])];
  });
  return { parameters, layers: new Map(layers) };
}
