/**
 * Small models and their layers, whole and divided over ranks, with a backward written by hand: for tests and examples of
 * training. No framework, plain typed arrays.
 */
export type { MicroBatch } from "../data-parallel/backward.ts";
export {
  type Mixture,
  type MixtureParts,
  type MixturePass,
  mixtureOfExperts,
} from "../experts/mixture.ts";
export { gelu, tanh } from "../layers/activation.ts";
export { type Heads, type SelfAttentionParts, selfAttention } from "../layers/attention.ts";
export {
  type Extent,
  type Layer,
  type Pass,
  residual,
  sequence,
  type TakeGradient,
  type Weights,
} from "../layers/layer.ts";
export { type LayerNormParts, layerNorm } from "../layers/layer-norm.ts";
export { type LinearParts, linear } from "../layers/linear.ts";
export {
  columnLinear,
  replicated,
  rowLinear,
  type ShardedLayer,
  type ShardedPass,
  sharded,
  shardedResidual,
  shardedSequence,
  visitedSequence,
} from "../tensor/sharded.ts";
export {
  type ShardedTransformer,
  shardedTransformer,
  type TransformerStage,
  transformerStage,
} from "./divided-transformer.ts";
export { type MlpBatch, type MlpOptions, mlp, mlpStage } from "./mlp.ts";
export { addTo, type Model, type ModelOptions, type StagePlace } from "./model.ts";
export type { TokenBatch, TransformerShape } from "./transformer.ts";
export { type Transformer, transformer } from "./transformer.ts";
