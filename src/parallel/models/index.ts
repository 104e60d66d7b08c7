/**
 * Small models with a backward written by hand, for tests and examples of training: no framework, plain typed arrays.
 */
export type { MicroBatch } from "../data-parallel/backward.ts";
export type { TakeGradient } from "../layers/layer.ts";
export { type MlpBatch, type MlpOptions, mlp } from "./mlp.ts";
export { addTo, type Model, type ModelOptions } from "./model.ts";
export {
  type TokenBatch,
  type Transformer,
  type TransformerShape,
  transformer,
} from "./transformer.ts";
