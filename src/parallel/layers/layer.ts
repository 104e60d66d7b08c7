/**
 * Layers on plain typed arrays, with their backward written by hand.
 *
 * Forward returns the output and a closure with the data of its own backward, so several passes may be under way at once, as in
 * pipelines. Gradients are passed on when they are complete, and belong to their receiver; all sums have a fixed order. For
 * tests, examples and sharded layers; much slower than a kernel library.
 */
import { invalid } from "../../api/option-kinds.ts";
import { type ParameterArray, parameterDTypeOf, zerosOf } from "../parameter-set.ts";

/** A parameter for a layer. */
export interface Weights {
  readonly name: string;
  readonly value: ParameterArray;
}

/** Rows of a batch: `sequences` times `length`, one sequence after the other. Only attention looks across rows. */
export interface Extent {
  readonly sequences: number;
  readonly length: number;
}

/** Receives every parameter's gradient once, as soon as it is complete in this pass. */
export type TakeGradient = (name: string, gradient: ParameterArray) => void;

/** One forward pass. */
export interface Pass {
  /** Rows of the layer's output, row-major. */
  readonly output: ParameterArray;
  /**
   * From the gradient by the output, reports those by the layer's parameters and returns the one by its input. `gradient` has
   * the output's length and is only read.
   */
  backward(gradient: ParameterArray, take: TakeGradient): ParameterArray;
}

/** A function from rows to rows, with its backward. */
export interface Layer {
  /** Computes the output rows of these input rows, and references the input for backward; it must not change until then. */
  forward(input: ParameterArray, extent: Extent): Pass;
}

/** Number of rows. */
export function rowsOf({ sequences, length }: Extent): number {
  return sequences * length;
}

/** Refuses an array of another length: a missing element would be read as NaN, and spread. */
export function assertElements(
  layer: string,
  field: string,
  { length }: ParameterArray,
  needed: number,
  of: string,
): void {
  if (length === needed) return;
  throw invalid(layer, field, `${length} elements`, `${needed} with ${of}`);
}

/** Zeros of an array's dtype. */
export function zerosLike(array: ParameterArray, length: number): ParameterArray {
  return zerosOf(parameterDTypeOf(array) ?? "float64", length);
}

/** The layers one after the other. */
export function sequence(layers: readonly Layer[]): Layer {
  return {
    forward(input, extent) {
      const passes: Pass[] = [];
      let output = input;
      for (const layer of layers) {
        const pass = layer.forward(output, extent);
        passes.push(pass);
        output = pass.output;
      }
      const backward = (gradient: ParameterArray, take: TakeGradient): ParameterArray =>
        passes.reduceRight((above, pass) => pass.backward(above, take), gradient);
      return { output, backward };
    },
  };
}

/**
 * The input plus the layer's output.
 *
 * @throws InvalidArgumentError for an output of another length than the input.
 */
export function residual(layer: Layer): Layer {
  return {
    forward(input, extent) {
      const inner = layer.forward(input, extent);
      return {
        output: sum(input, inner.output),
        backward: (gradient, take) => sum(gradient, inner.backward(gradient, take)),
      };
    },
  };
}

/** Element by element; refuses another length of the second array. */
export function sum(a: ParameterArray, b: ParameterArray): ParameterArray {
  assertElements("residual", "rows", b, a.length, "those of the input");
  const total = zerosLike(a, a.length);
  for (let i = 0; i < a.length; i++) total[i] = (a[i] as number) + (b[i] as number);
  return total;
}

/** Adds `factor` times `count` elements of `from`, from place `j` on, to those of `to` from `i` on. */
export function addScaled(
  to: ParameterArray,
  i: number,
  factor: number,
  from: ParameterArray,
  j: number,
  count: number,
): void {
  for (let at = 0; at < count; at++) {
    to[i + at] = (to[i + at] as number) + factor * (from[j + at] as number);
  }
}
