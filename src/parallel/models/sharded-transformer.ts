/** The transformer of `transformer`, its blocks divided over the ranks of a communicator. */
import type { Communicator } from "../../api/index.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import type { Divided } from "../divided.ts";
import { embed } from "../layers/embedding.ts";
import { type TakeGradient, zerosLike } from "../layers/layer.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import { ParameterSet } from "../parameter-set.ts";
import { shardedSequence } from "../tensor/sharded.ts";
import { axisOf, closing, dividedBlock, dividedDeclarations } from "./divided-blocks.ts";
import { type ModelOptions, weightsOf } from "./model.ts";
import {
  assertShape,
  shifted,
  type TokenBatch,
  type TransformerShape,
} from "./transformer-parts.ts";

/** One rank's part of a transformer. */
export interface ShardedTransformer {
  /** This rank's part of the divided parameters, and all of the others. */
  readonly parameters: ParameterSet;
  /** The axis along which a parameter is divided; `undefined` for one that every rank has whole. */
  axisOf(name: string): number | undefined;
  /** For the trainers of data parallel lines: the ranks of the model, and which parameters all of them have. */
  readonly divided: Divided;
  /** As `Model.backward`, by all ranks together with the same batch. */
  backward(batch: TokenBatch, take: TakeGradient): Promise<MicroBatch>;
}

/**
 * Attention is divided by heads and the perceptron by hidden units, the first ranks having one more where they do not come
 * out even; embeddings, norms and the head are on every rank. Initial values are those of `transformer`, cut.
 *
 * - **Cost** of a backward: two all-reduces forward and two backward for every block, of sequences · length · width elements.
 *
 * @throws InvalidArgumentError as `transformer`.
 */
export function shardedTransformer(
  comm: Communicator,
  options: TransformerShape & ModelOptions,
): ShardedTransformer {
  assertShape(options);
  const { width, vocabulary } = options;
  const parameters = new ParameterSet(dividedDeclarations(comm, options));
  const parts = { tensor: comm, shape: options, get: weightsOf(parameters) };
  const blocks = Array.from({ length: options.blocks }, (_, at) => dividedBlock(parts, at));
  const stack = shardedSequence([...blocks, closing(parts)]);
  const table = {
    token: parameters.get("token.weight"),
    position: parameters.get("position.weight"),
    width,
  };
  return {
    parameters,
    axisOf,
    divided: { comm, copies: (name) => (axisOf(name) === undefined ? comm.size : 1) },
    async backward(batch, take) {
      const { inputs, targets, extent } = shifted(options, batch);
      const embedded = embed(table, inputs, extent);
      const pass = await stack.forward(embedded.output, extent);
      const gradient = zerosLike(pass.output, pass.output.length);
      const { value, weight } = crossEntropy({
        logits: pass.output,
        targets,
        classes: vocabulary,
        gradient,
        reduction: "sum",
      });
      embedded.backward(await pass.backward(gradient, take), take);
      return { loss: value, samples: targets.length, weight };
    },
  };
}
