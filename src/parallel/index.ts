/** Training on top of a Communicator: parameters and their gradients, random numbers, state that is kept. */
export { type CrossEntropyArgs, crossEntropy } from "./losses/cross-entropy.ts";
export type { Loss } from "./losses/loss.ts";
export { type MseArgs, mse } from "./losses/mse.ts";
export { type AdamWOptions, adamW } from "./optimizers/adamw.ts";
export { type LionOptions, lion } from "./optimizers/lion.ts";
export { Optimizer, type StepOptions, type Trainable } from "./optimizers/optimizer.ts";
export type { LearningRate, Update, UpdateRule } from "./optimizers/rule.ts";
export { type SgdOptions, sgd } from "./optimizers/sgd.ts";
export {
  type Parameter,
  type ParameterArray,
  type ParameterDeclaration,
  type ParameterDType,
  ParameterSet,
} from "./parameter-set.ts";
export { Random } from "./random.ts";
export {
  type CosineOptions,
  constant,
  cosine,
  type Schedule,
  type WarmUpOptions,
  warmUp,
} from "./schedules.ts";
export type { State, Stateful, StateTensor, StateValue } from "./state.ts";
