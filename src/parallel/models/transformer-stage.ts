/** The transformer of `transformer` as stages of a pipeline, each whole or divided over ranks. */
import type { Communicator } from "../../api/index.ts";
import { embed } from "../layers/embedding.ts";
import { zerosLike } from "../layers/layer.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import { type ParameterArray, ParameterSet } from "../parameter-set.ts";
import type { Stage } from "../pipeline/stage.ts";
import { type ShardedLayer, visitedSequence } from "../tensor/sharded.ts";
import { partOf } from "../tensor/split.ts";
import { axisOf, closing, dividedBlock, dividedDeclarations } from "./divided-blocks.ts";
import { type ModelOptions, type StagePlace, weightsOf } from "./model.ts";
import {
  assertShape,
  shifted,
  type TokenBatch,
  type TransformerShape,
} from "./transformer-parts.ts";

/** One stage of a transformer. */
export interface TransformerStage extends Stage<TokenBatch> {
  /** The stage's own: where it is divided, this rank's part of the divided parameters, and all of the others. */
  readonly parameters: ParameterSet;
  /** The layer of a parameter, as the stage visits them: `embedding`, `block0`, `block1`, …, `closing`. */
  layerOf(name: string): string;
  /** The axis along which a parameter is divided; `undefined` for one that every rank of the stage has whole. */
  axisOf(name: string): number | undefined;
  /** Number of ranks of the stage that have a parameter, for `Divided.copies`; 1 where the stage is not divided. */
  copies(name: string): number;
}

/**
 * Stage `rank` of `size`: whole blocks, the first stages one more where they do not come out even; the first has the
 * embeddings, the last the closing norm, the head and the loss. With `tensor` its ranks divide the stage among them as
 * `shardedTransformer` does, and its calls are made by all of them together. Initial values are those of `transformer`.
 *
 * @throws InvalidArgumentError as `transformer`.
 * @example
 * const stage = transformerStage(mesh.comm("pipeline"), shape, mesh.comm("tensor"));
 * const pipeline = await PipelineParallel.create(mesh.comm("pipeline"), stage);
 */
export function transformerStage(
  place: StagePlace,
  options: TransformerShape & ModelOptions,
  tensor?: Communicator,
): TransformerStage {
  assertShape(options);
  const own = partOf(options.blocks, place);
  const { rank, size } = place;
  const { vocabulary, width } = options;
  const [isFirst, isLast] = [rank === 0, rank === size - 1];
  const parameters = new ParameterSet(
    dividedDeclarations(tensor, options).filter(({ name }) => {
      const block = /^block(\d+)\./.exec(name)?.[1];
      if (block !== undefined) return Number(block) >= own.begin && Number(block) < own.end;
      return /^(token|position)\./.test(name) ? isFirst : isLast;
    }),
  );
  const parts = { tensor, shape: options, get: weightsOf(parameters) };
  const layers = new Map<string, ShardedLayer>();
  for (let at = own.begin; at < own.end; at++) layers.set(`block${at}`, dividedBlock(parts, at));
  if (isLast) layers.set("closing", closing(parts));
  return {
    parameters,
    layerOf,
    axisOf,
    copies: (name) => (axisOf(name) === undefined ? (tensor?.size ?? 1) : 1),
    inputLength: (batch) => shifted(options, batch).inputs.length * width,
    async forward(batch, input, visit) {
      const { inputs, targets, extent } = shifted(options, batch);
      if (isFirst) await visit("embedding");
      const embedded = isFirst ? embed(tableOf(parameters, width), inputs, extent) : undefined;
      const stack = visitedSequence(layers, visit);
      const pass = await stack.forward(embedded?.output ?? (input as ParameterArray), extent);
      const { output } = pass;
      const gradient = isLast ? zerosLike(output, output.length) : undefined;
      const loss =
        gradient &&
        crossEntropy({ logits: output, targets, classes: vocabulary, gradient, reduction: "sum" });
      return {
        output,
        told: loss && { loss: loss.value, samples: targets.length, weight: loss.weight },
        async backward(above, take) {
          const below = await pass.backward(gradient ?? (above as ParameterArray), take);
          if (embedded === undefined) return below;
          await visit("embedding");
          embedded.backward(below, take);
          return below;
        },
      };
    },
  };
}

function layerOf(name: string): string {
  if (/^(token|position)\./.test(name)) return "embedding";
  return /^block\d+/.exec(name)?.[0] ?? "closing";
}

function tableOf(parameters: ParameterSet, width: number) {
  return {
    token: parameters.get("token.weight"),
    position: parameters.get("position.weight"),
    width,
  };
}
