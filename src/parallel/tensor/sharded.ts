/**
 * Layers with weights divided over the ranks of a communicator, forward and backward (as in Megatron-LM,
 * https://arxiv.org/abs/1909.08053).
 *
 * All ranks pass the same input and get the same output, bit by bit. In between is any layer over a rank's part of the weights,
 * with a part of a sum as its output. An example is two linear layers, the first divided by outputs and the second by inputs,
 * with element-wise or head-wise layers between them. Cost: one all-reduce forward, one backward.
 */
import type { Communicator } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertCommunicator } from "../argument-checks.ts";
import { noVisits } from "../data-parallel/backward.ts";
import { sumOverRanks } from "../host-collectives.ts";
import {
  assertElements,
  assertLayer,
  assertLayers,
  assertWeights,
  type Extent,
  type Layer,
  rowsOf,
  sum,
  type TakeGradient,
  type Weights,
} from "../layers/layer.ts";
import { assertParts, type LinearParts, linear, sumOfRows } from "../layers/linear.ts";
import type { ParameterArray } from "../parameter-set.ts";

/** One forward pass of a sharded layer. */
export interface ShardedPass {
  readonly output: ParameterArray;
  /** As `Pass.backward`; collective if the layer is. */
  backward(gradient: ParameterArray, take: TakeGradient): Promise<ParameterArray>;
}

/** A layer that all ranks of a communicator run together. */
export interface ShardedLayer {
  /** As `Layer.forward`; collective if the layer is. */
  forward(input: ParameterArray, extent: Extent): Promise<ShardedPass>;
}

/** A layer that every rank has whole and runs by itself. */
export function replicated(layer: Layer): ShardedLayer {
  assertLayer("replicated", "layer", layer);
  return {
    async forward(input, extent) {
      const pass = layer.forward(input, extent);
      return {
        output: pass.output,
        backward: async (gradient, take) => pass.backward(gradient, take),
      };
    },
  };
}

/**
 * A layer over this rank's part of the weights: the ranks' outputs are summed, and so are their gradients by the input.
 *
 * `bias` is whole on every rank and added once, to the sum; its gradient is the same on every rank.
 *
 * @throws InvalidArgumentError by `forward`, for a bias of another length than the output's rows.
 * @throws CollectiveMismatchError on all ranks when outputs, or gradients by the input, differ in length: never padded.
 */
export function sharded(comm: Communicator, layer: Layer, bias?: Weights): ShardedLayer {
  assertCommunicator("sharded", comm);
  assertLayer("sharded", "layer", layer);
  if (bias !== undefined) assertWeights("sharded", "bias", bias);
  return divided(layer, {
    forward: (partial) => sumOverRanks(comm, partial),
    backward: (partial) => sumOverRanks(comm, partial),
    bias,
  });
}

/**
 * A linear layer divided by outputs: `weight` and `bias` are this rank's rows, and so is its output. Forward makes no
 * call; backward sums the gradients by the input.
 */
export function columnLinear(comm: Communicator, parts: LinearParts): ShardedLayer {
  assertCommunicator("columnLinear", comm);
  assertParts("columnLinear", parts);
  return divided(linear(parts), { backward: (partial) => sumOverRanks(comm, partial) });
}

/**
 * A linear layer divided by inputs: `weight` holds this rank's columns and the input its part of every row; `bias` is whole
 * on every rank. Forward sums the outputs; backward makes no call.
 */
export function rowLinear(comm: Communicator, parts: LinearParts): ShardedLayer {
  assertCommunicator("rowLinear", comm);
  assertParts("rowLinear", parts);
  const { bias, ...withoutBias } = parts;
  return divided(linear(withoutBias), { forward: (partial) => sumOverRanks(comm, partial), bias });
}

type Join = (partial: ParameterArray) => Promise<ParameterArray>;

function divided(
  layer: Layer,
  { forward, backward, bias }: { forward?: Join; backward?: Join; bias?: Weights | undefined },
): ShardedLayer {
  return {
    async forward(input, extent) {
      const rows = rowsOf(extent);
      const pass = layer.forward(input, extent);
      const joined = forward === undefined ? pass.output : await forward(pass.output);
      if (bias !== undefined) addToRows(joined, bias, rows);
      return {
        output: joined,
        async backward(gradient, take) {
          if (bias !== undefined) take(bias.name, sumOfRows(gradient, rows, bias.value.length));
          const partial = pass.backward(gradient, take);
          return backward === undefined ? partial : await backward(partial);
        },
      };
    },
  };
}

/** The layers one after the other. */
export function shardedSequence(layers: readonly ShardedLayer[]): ShardedLayer {
  assertLayers("shardedSequence", layers);
  return visitedSequence(layers.entries(), noVisits);
}

/** The layers one after the other; each is visited by its name before it computes, forward and back. */
export function visitedSequence<Name>(
  layers: Iterable<readonly [Name, ShardedLayer]>,
  visit: (name: Name) => Promise<void>,
): ShardedLayer {
  if (typeof layers?.[Symbol.iterator] !== "function") {
    throw invalid("visitedSequence", "layers", textOf(layers), "layers with their names");
  }
  const named = [...layers];
  return {
    async forward(input, extent) {
      const passes: (readonly [Name, ShardedPass])[] = [];
      let output = input;
      for (const [name, layer] of named) {
        await visit(name);
        const pass = await layer.forward(output, extent);
        passes.push([name, pass]);
        output = pass.output;
      }
      return {
        output,
        async backward(gradient, take) {
          let above = gradient;
          for (const [name, pass] of passes.toReversed()) {
            await visit(name);
            above = await pass.backward(above, take);
          }
          return above;
        },
      };
    },
  };
}

/** The input plus the layer's output. */
export function shardedResidual(layer: ShardedLayer): ShardedLayer {
  assertLayer("shardedResidual", "layer", layer);
  return {
    async forward(input, extent) {
      const inner = await layer.forward(input, extent);
      return {
        output: sum(input, inner.output),
        backward: async (gradient, take) => sum(gradient, await inner.backward(gradient, take)),
      };
    },
  };
}

function addToRows(rows: ParameterArray, { name, value: bias }: Weights, count: number): void {
  const width = bias.length;
  assertElements("sharded", "output", rows, count * width, `${count} rows as wide as "${name}"`);
  for (let at = 0; at < count * width; at++) {
    rows[at] = (rows[at] as number) + (bias[at % width] as number);
  }
}
