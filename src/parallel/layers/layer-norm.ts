/** Layer normalisation of every row, as `torch.nn.LayerNorm` with its epsilon of 1e-5. */
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertElements,
  assertWeights,
  type Layer,
  lengthOf,
  rowsOf,
  type Weights,
  zerosLike,
} from "./layer.ts";

const EPSILON = 1e-5;

/** The parts of a layer norm; both as long as a row. */
export interface LayerNormParts {
  readonly weight: Weights;
  readonly bias: Weights;
}

/**
 * y = weight · (x − mean) / √(variance + ε) + bias, with the mean and the biased variance of the row.
 *
 * @throws InvalidArgumentError for rows, a bias or a gradient of another length than the weight.
 */
export function layerNorm(parts: LayerNormParts): Layer {
  const { weight, bias } = parts ?? {};
  assertWeights("layerNorm", "weight", weight);
  assertWeights("layerNorm", "bias", bias);
  const width = lengthOf("layerNorm", weight.name, weight.value);
  return {
    forward(input, extent) {
      const rows = rowsOf(extent);
      const of = `${rows} rows of ${width}`;
      assertElements("layerNorm", bias.name, bias.value, width, of);
      assertElements("layerNorm", "input", input, rows * width, of);
      const output = zerosLike(input, rows * width);
      const normal = zerosLike(input, rows * width);
      const scales = new Float64Array(rows);
      const [factors, offsets] = [weight.value, bias.value];
      for (let row = 0; row < rows; row++) {
        const [mean, scale] = moments(input, row * width, width);
        scales[row] = scale;
        for (let i = 0; i < width; i++) {
          const at = row * width + i;
          normal[at] = ((input[at] as number) - mean) * scale;
          output[at] = (normal[at] as number) * (factors[i] as number) + (offsets[i] as number);
        }
      }
      return {
        output,
        backward(gradient, take) {
          assertElements("layerNorm", "gradient", gradient, rows * width, of);
          const below = zerosLike(gradient, rows * width);
          const sums = { weight: zerosLike(gradient, width), bias: zerosLike(gradient, width) };
          for (let row = 0; row < rows; row++) {
            addRow(below, sums, normal, gradient, row * width, scales[row] as number);
          }
          take(bias.name, sums.bias);
          take(weight.name, sums.weight);
          return below;
        },
      };
    },
  };

  /** One row of backward: the parameters' gradients, and the input's, which has no component along the row's mean and scale. */
  function addRow(
    below: ParameterArray,
    sums: { readonly weight: ParameterArray; readonly bias: ParameterArray },
    normal: ParameterArray,
    gradient: ParameterArray,
    begin: number,
    scale: number,
  ): void {
    const factors = weight.value;
    let sum = 0;
    let along = 0;
    for (let i = 0; i < width; i++) {
      const above = gradient[begin + i] as number;
      const x = normal[begin + i] as number;
      sums.bias[i] = (sums.bias[i] as number) + above;
      sums.weight[i] = (sums.weight[i] as number) + above * x;
      sum += above * (factors[i] as number);
      along += above * (factors[i] as number) * x;
    }
    for (let i = 0; i < width; i++) {
      const weighted = (gradient[begin + i] as number) * (factors[i] as number);
      below[begin + i] = scale * (weighted - (sum + (normal[begin + i] as number) * along) / width);
    }
  }
}

/** Mean of a row and 1 / √(variance + ε). */
function moments(x: ParameterArray, begin: number, width: number): [number, number] {
  let sum = 0;
  for (let i = begin; i < begin + width; i++) sum += x[i] as number;
  const mean = sum / width;
  let squares = 0;
  for (let i = begin; i < begin + width; i++) squares += ((x[i] as number) - mean) ** 2;
  return [mean, 1 / Math.sqrt(squares / width + EPSILON)];
}
