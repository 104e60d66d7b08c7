/**
 * The cut of parameters into shards: layer by layer, each rank holding an equal range of each.
 *
 * The parameters of a layer follow one another in flat parameters, one for each dtype (and, in a divided model, for each number of
 * ranks that have them). A flat parameter is padded to a multiple of the ranks; rank r holds the r-th part of it, wherever that cuts
 * the parameters. Padding is zeros, never seen outside and never saved.
 */
import { type Divided, groupByCopies } from "../divided.ts";
import type { Parameter, ParameterDType } from "../parameter-set.ts";

/** Where a parameter lies in its flat parameter. */
export interface FlatPosition {
  readonly parameter: Parameter;
  /** First element in the flat parameter. */
  readonly begin: number;
}

/** Parameters that are cut together. */
export interface FlatParameter {
  readonly dtype: ParameterDType;
  readonly parameters: readonly FlatPosition[];
  /** Elements of all its parameters; at least 1. */
  readonly length: number;
  /** Elements that each rank holds, padding included. */
  readonly shardLength: number;
}

/** Values that are gathered, computed with and freed together. */
export interface LayerPlan {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly flatParameters: readonly FlatParameter[];
}

/** A range of a parameter that a rank holds. */
export interface ShardRange {
  readonly parameter: Parameter;
  /** First element in the parameter. */
  readonly begin: number;
  /** Exclusive. */
  readonly end: number;
  /** First element in the rank's share. */
  readonly at: number;
}

/** The layers of a model with parameters in their order of use; a layer's place is that of its first one. */
export function layersOf(
  inUse: readonly Parameter[],
  layerOf: (name: string) => string,
  divided: Divided | undefined,
  size: number,
): LayerPlan[] {
  const layers = new Map<string, Parameter[]>();
  for (const parameter of inUse) {
    const name = layerOf(parameter.name);
    layers.set(name, [...(layers.get(name) ?? []), parameter]);
  }
  return [...layers].map(([name, parameters]) => {
    const alike = (["float32", "float64"] as const).flatMap((dtype) =>
      groupByCopies(
        parameters.filter((each) => each.dtype === dtype),
        divided,
      ).map(([, of]) => flatParameterOf(dtype, of, size)),
    );
    return { name, parameters, flatParameters: alike.filter(({ length }) => length > 0) };
  });
}

function flatParameterOf(
  dtype: ParameterDType,
  parameters: readonly Parameter[],
  size: number,
): FlatParameter {
  let length = 0;
  const placed = parameters.map((parameter) => {
    const begin = length;
    length += parameter.length;
    return { parameter, begin };
  });
  return { dtype, parameters: placed, length, shardLength: Math.ceil(length / size) };
}

/** The ranges of a flat parameter's parameters that a rank holds; empty ones too, so that every rank knows every parameter. */
export function shardRangesOf(
  { parameters, shardLength }: FlatParameter,
  rank: number,
): ShardRange[] {
  const first = rank * shardLength;
  return parameters.map(({ parameter, begin }) => {
    const inside = (at: number): number => Math.min(Math.max(at - begin, 0), parameter.length);
    const [from, end] = [inside(first), inside(first + shardLength)];
    return { parameter, begin: from, end, at: Math.min(Math.max(begin - first, 0), shardLength) };
  });
}
