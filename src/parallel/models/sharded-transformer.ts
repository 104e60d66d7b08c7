/** The transformer of `transformer`, its blocks divided over the ranks of a communicator: a pipeline of one stage. */
import type { Communicator } from "../../api/index.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import type { Divided } from "../divided.ts";
import { assertCommunicator } from "../handles.ts";
import type { TakeGradient } from "../layers/layer.ts";
import type { ParameterSet } from "../parameter-set.ts";
import { everythingIsHere, type VisitLayer } from "../visit.ts";
import { axisOf } from "./divided-blocks.ts";
import type { ModelOptions } from "./model.ts";
import type { TokenBatch, TransformerShape } from "./transformer-parts.ts";
import { transformerStage } from "./transformer-stage.ts";

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
   * As `Model.backward`, by all ranks together with the same batch. `visit` gets every layer before it is used, forward and
   * back; `ShardedParallel` at stage 3 needs it.
   *
   * @example
   * await trainer.step([batch], (each, ready, visit) => model.backward(each, ready, visit));
   */
  backward(batch: TokenBatch, take: TakeGradient, visit?: VisitLayer): Promise<MicroBatch>;
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
  assertCommunicator("shardedTransformer", comm);
  const { parameters, layerOf, copies, forward } = transformerStage(
    { rank: 0, size: 1 },
    options,
    comm,
  );
  return {
    parameters,
    axisOf,
    divided: { comm, copies },
    layerOf,
    async backward(batch, take, visit = everythingIsHere) {
      const { told, backward } = await forward(batch, undefined, visit);
      await backward(undefined, take);
      return told as MicroBatch;
    },
  };
}
