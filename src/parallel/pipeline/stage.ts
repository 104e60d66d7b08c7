/** One stage of a pipeline: what a rank computes between what the stage before sends and what the next one needs. */
import type { MicroBatch } from "../data-parallel/backward.ts";
import type { TakeGradient } from "../layers/layer.ts";
import type { ParameterArray } from "../parameter-set.ts";
import type { VisitLayer } from "../visit.ts";

/** One forward pass of a stage. Several are under way at once; each keeps what its own backward needs. */
export interface StagePass {
  /** The input of the next stage, in the pipeline's dtype; not read on the last stage. Sent before anything else is computed. */
  readonly output?: ParameterArray | undefined;
  /** The sum of the losses over the micro-batch and its samples, on the last stage alone. */
  readonly told?: MicroBatch | undefined;
  /**
   * From the gradient by the output (none on the last stage, which has the loss's) reports those by the stage's parameters,
   * each at most once, and gives the one by the input: as long as it; not read on the first stage. Gradients are those of
   * the sum of the losses.
   */
  backward(
    gradient: ParameterArray | undefined,
    take: TakeGradient,
  ): ParameterArray | undefined | PromiseLike<ParameterArray | undefined>;
}

/** One rank's stage: one of `mlpStage` and `transformerStage`, or your own. */
export interface Stage<Batch> {
  /** Number of elements that the stage before sends for a micro-batch. Not called on the first stage. */
  inputLength(batch: Batch): number;
  /**
   * Computes a micro-batch. The first stage gets no input and reads the batch; the last reads its targets there. An input
   * belongs to the stage.
   *
   * `visit` gets every layer of the stage before it is used, first to last, and by the pass's backward last to first; where
   * values are held in shards (`ShardedParallel`), a layer's can be read from then until the next visit.
   */
  forward(
    batch: Batch,
    input: ParameterArray | undefined,
    visit: VisitLayer,
  ): StagePass | PromiseLike<StagePass>;
}
