/** A linear layer, laid out as PyTorch's: y = x Wᵀ + b with W of `outputs` rows and `inputs` columns. */

import { assertCount } from "../argument-checks.ts";
import type { ParameterArray } from "../parameter-set.ts";
import {
  assertElements,
  assertWeights,
  type Layer,
  rowsOf,
  type Weights,
  zerosLike,
} from "./layer.ts";

/** The parts of a linear layer. */
export interface LinearParts {
  readonly weight: Weights;
  /** Left out, no bias is added. */
  readonly bias?: Weights | undefined;
  readonly inputs: number;
  readonly outputs: number;
}

/**
 * Maps rows of `inputs` numbers to rows of `outputs`.
 *
 * @throws InvalidArgumentError for rows, a weight, a bias or a gradient of another length; never truncated or padded.
 */
export function linear(parts: LinearParts): Layer {
  assertParts("linear", parts);
  const { weight, bias } = parts;
  return {
    forward(input, extent) {
      const rows = rowsOf(extent);
      assertLengths(parts, input, rows);
      return {
        output: multiply(parts, input, rows),
        backward(gradient, take) {
          assertElements(
            "linear",
            "gradient",
            gradient,
            rows * parts.outputs,
            extentText(parts, rows),
          );
          if (bias !== undefined) take(bias.name, sumOfRows(gradient, rows, parts.outputs));
          const byWeight = zerosLike(gradient, weight.value.length);
          const byInput = spread(parts, input, gradient, byWeight, rows);
          take(weight.name, byWeight);
          return byInput;
        },
      };
    },
  };
}

/** Refuses values that are not the parts of a linear layer. */
export function assertParts(action: string, parts: LinearParts): void {
  const { weight, bias, inputs, outputs } = parts ?? {};
  assertWeights(action, "weight", weight);
  if (bias !== undefined) assertWeights(action, "bias", bias);
  assertCount(action, "inputs", inputs, 0);
  assertCount(action, "outputs", outputs, 0);
}

function assertLengths(parts: LinearParts, input: ParameterArray, rows: number): void {
  const { weight, bias, inputs, outputs } = parts;
  const of = extentText(parts, rows);
  assertElements("linear", weight.name, weight.value, inputs * outputs, of);
  assertElements("linear", "input", input, rows * inputs, of);
  if (bias !== undefined) assertElements("linear", bias.name, bias.value, outputs, of);
}

function extentText({ inputs, outputs }: LinearParts, rows: number): string {
  return `${rows} rows, ${inputs} inputs and ${outputs} outputs`;
}

/** x Wᵀ + b. Four outputs at a time share the reads of x. */
function multiply(parts: LinearParts, input: ParameterArray, rows: number): ParameterArray {
  const { inputs, outputs } = parts;
  const weight = parts.weight.value;
  const bias = parts.bias?.value ?? zerosLike(weight, outputs);
  const output = zerosLike(input, rows * outputs);
  const fours = outputs - (outputs % 4);
  for (let row = 0; row < rows; row++) {
    const x = row * inputs;
    const y = row * outputs;
    for (let o = 0; o < fours; o += 4) {
      const [w0, w1, w2, w3] = [o * inputs, (o + 1) * inputs, (o + 2) * inputs, (o + 3) * inputs];
      let [s0, s1, s2, s3] = [0, 0, 0, 0];
      for (let i = 0; i < inputs; i++) {
        const at = input[x + i] as number;
        s0 += at * (weight[w0 + i] as number);
        s1 += at * (weight[w1 + i] as number);
        s2 += at * (weight[w2 + i] as number);
        s3 += at * (weight[w3 + i] as number);
      }
      output[y + o] = s0 + (bias[o] as number);
      output[y + o + 1] = s1 + (bias[o + 1] as number);
      output[y + o + 2] = s2 + (bias[o + 2] as number);
      output[y + o + 3] = s3 + (bias[o + 3] as number);
    }
    for (let o = fours; o < outputs; o++) {
      let total = 0;
      for (let i = 0; i < inputs; i++) {
        total += (input[x + i] as number) * (weight[o * inputs + i] as number);
      }
      output[y + o] = total + (bias[o] as number);
    }
  }
  return output;
}

/** Adds the gradient by W to `dw`, and returns the one by x. */
function spread(
  { weight, inputs, outputs }: LinearParts,
  input: ParameterArray,
  gradient: ParameterArray,
  dw: ParameterArray,
  rows: number,
): ParameterArray {
  const w = weight.value;
  const below = zerosLike(gradient, rows * inputs);
  for (let row = 0; row < rows; row++) {
    const x = row * inputs;
    for (let o = 0; o < outputs; o++) {
      const above = gradient[row * outputs + o] as number;
      const at = o * inputs;
      for (let i = 0; i < inputs; i++) {
        below[x + i] = (below[x + i] as number) + above * (w[at + i] as number);
        dw[at + i] = (dw[at + i] as number) + above * (input[x + i] as number);
      }
    }
  }
  return below;
}

/** The sum of the rows. */
export function sumOfRows(gradient: ParameterArray, rows: number, width: number): ParameterArray {
  const sums = zerosLike(gradient, width);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < width; i++) {
      sums[i] = (sums[i] as number) + (gradient[row * width + i] as number);
    }
  }
  return sums;
}
