/** The transformer of `transformer`, its blocks divided over the ranks of a communicator. */
import type { Communicator } from "../../api/index.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import type { Divided } from "../divided.ts";
import { embed } from "../layers/embedding.ts";
import { type TakeGradient, zerosLike } from "../layers/layer.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import { ParameterSet } from "../parameter-set.ts";
import type { ShardedPass } from "../tensor/sharded.ts";
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
  /** The layer of a parameter, as `backward` visits them: `embedding`, `block0`, `block1`, …, `closing`. */
  layerOf(name: string): string;
  /**
   * As `Model.backward`, by all ranks together with the same batch. `visit` is told every layer before it is used, forward and
   * back; `ShardedParallel` at stage 3 needs it.
   *
   * @example
   * await trainer.step([batch], (each, ready, visit) => model.backward(each, ready, visit));
   */
  backward(
    batch: TokenBatch,
    take: TakeGradient,
    visit?: (layer: string) => Promise<void>,
  ): Promise<MicroBatch>;
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
  const layers = [
    ...Array.from({ length: options.blocks }, (_, at) => ({
      name: `block${at}`,
      layer: dividedBlock(parts, at),
    })),
    { name: "closing", layer: closing(parts) },
  ];
  const table = {
    token: parameters.get("token.weight"),
    position: parameters.get("position.weight"),
    width,
  };
  return {
    parameters,
    axisOf,
    divided: { comm, copies: (name) => (axisOf(name) === undefined ? comm.size : 1) },
    layerOf,
    async backward(batch, take, visit = () => Promise.resolve()) {
      const { inputs, targets, extent } = shifted(options, batch);
      await visit("embedding");
      const embedded = embed(table, inputs, extent);
      let rows = embedded.output;
      const passes: { name: string; pass: ShardedPass }[] = [];
      for (const { name, layer } of layers) {
        await visit(name);
        const pass = await layer.forward(rows, extent);
        passes.push({ name, pass });
        rows = pass.output;
      }
      let above = zerosLike(rows, rows.length);
      const { value, weight } = crossEntropy({
        logits: rows,
        targets,
        classes: vocabulary,
        gradient: above,
        reduction: "sum",
      });
      for (const { name, pass } of passes.toReversed()) {
        await visit(name);
        above = await pass.backward(above, take);
      }
      await visit("embedding");
      embedded.backward(above, take);
      return { loss: value, samples: targets.length, weight };
    },
  };
}

function layerOf(name: string): string {
  if (/^(token|position)\./.test(name)) return "embedding";
  return /^block\d+/.exec(name)?.[0] ?? "closing";
}
