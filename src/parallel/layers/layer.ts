/**
 * Layers on plain typed arrays, with their backward written by hand.
 *
 * Forward returns the output and a closure with the data of its own backward, so several passes may be under way at once, as in
 * pipelines. Gradients are passed on when they are complete, and belong to their receiver; all sums have a fixed order. For
 * tests, examples and sharded layers; much slower than a kernel library.
 */
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertHasFunctions, isCount } from "../argument-checks.ts";
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
export function rowsOf(extent: Extent): number {
  const { sequences, length } = extent ?? {};
  if (isCount(sequences) && isCount(length)) return sequences * length;
  const found =
    extent === undefined || extent === null ? textOf(extent) : `${sequences} of ${length}`;
  throw invalid("forward", "extent", found, "{ sequences, length } of whole numbers");
}

/** Refuses an array of another length: a missing element would be read as NaN, and spread. */
export function assertElements(
  layer: string,
  field: string,
  array: ParameterArray,
  needed: number,
  of: string,
): void {
  const length = (array as ParameterArray | undefined)?.length;
  if (length === needed) return;
  if (length === undefined)
    throw invalid(layer, field, textOf(array), `${needed} elements with ${of}`);
  throw invalid(layer, field, `${length} elements`, `${needed} with ${of}`);
}

/** Refuses a value that is not a layer. */
export function assertLayer(action: string, field: string, layer: unknown): void {
  assertHasFunctions(action, field, layer, ["forward"]);
}

/** Refuses a value that is not an array of layers. */
export function assertLayers(action: string, layers: unknown, field = "layers"): void {
  if (!Array.isArray(layers)) throw invalid(action, field, textOf(layers), "an array of layers");
  for (const [at, layer] of layers.entries()) assertLayer(action, `${field}[${at}]`, layer);
}

/** Refuses a value that is not a parameter. */
export function assertWeights(action: string, field: string, weights: unknown): void {
  const name = (weights as Weights | null | undefined)?.name;
  if (typeof name === "string") return;
  const found =
    typeof weights === "object" && weights !== null ? `a name of ${textOf(name)}` : textOf(weights);
  throw invalid(action, field, found, "{ name, value } of a parameter");
}

/** Elements of an array; refuses a value that is none. */
export function lengthOf(layer: string, field: string, array: ParameterArray): number {
  if (typeof (array as ParameterArray | undefined)?.length === "number") return array.length;
  throw invalid(layer, field, textOf(array), "an array of numbers");
}

/** Zeros of an array's dtype. */
export function zerosLike(array: ParameterArray, length: number): ParameterArray {
  return zerosOf(parameterDTypeOf(array) ?? "float64", length);
}

/** The layers one after the other. */
export function sequence(layers: readonly Layer[]): Layer {
  assertLayers("sequence", layers);
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
  assertLayer("residual", "layer", layer);
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
