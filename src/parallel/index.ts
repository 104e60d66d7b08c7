/**
 * Training on top of a Communicator: parameters and their gradients, data parallelism, optimizers,
 * samplers, random numbers, checkpoints.
 *
 * It runs unchanged on every backend. The caller computes, on the host.
 */
export {
  type CheckpointOptions,
  Checkpoints,
  type SavedCheckpoint,
} from "./checkpoint/checkpoints.ts";
export { type CheckpointFiles, directoryFiles, memoryFiles } from "./checkpoint/files.ts";
export { decodeTensors, encodeTensors, type TensorFile } from "./checkpoint/safetensors.ts";
export type { CheckpointParts } from "./checkpoint/states.ts";
export type { Direction, MicroBatch, Ready, Visit, VisitLayer } from "./data-parallel/backward.ts";
export { DataParallel } from "./data-parallel/data-parallel.ts";
export type { StepStats } from "./data-parallel/finish-step.ts";
export type { DataParallelOptions } from "./data-parallel/options.ts";
export type { HalfDType, Wire } from "./data-parallel/wire.ts";
export type { Divided } from "./divided.ts";
export { CheckpointError, NonFiniteGradientError, UnusedParametersError } from "./errors.ts";
export {
  type Combined,
  type Dispatched,
  type ExpertOptions,
  ExpertParallel,
  type Load,
} from "./experts/expert-parallel.ts";
export { type Routes, routeTopK, type TopKOptions, type TopKRoutes } from "./experts/routing.ts";
export type { Loss, Reduction } from "./losses.ts";
export { type CrossEntropyArgs, crossEntropy, type MseArgs, mse } from "./losses.ts";
export { Mesh } from "./mesh.ts";
export { Optimizer, type StepOptions, type Trainable } from "./optimizers/optimizer.ts";
export type { LearningRate, Update, UpdateRule } from "./optimizers/rules.ts";
export {
  type AdamWOptions,
  adamW,
  type LionOptions,
  lion,
  type SgdOptions,
  sgd,
} from "./optimizers/rules.ts";
export {
  type CosineOptions,
  constant,
  cosine,
  type Schedule,
  type WarmUpOptions,
  warmUp,
} from "./optimizers/schedules.ts";
export {
  ParameterServer,
  type ParameterServerOptions,
  type PushResult,
} from "./parameter-server/parameter-server.ts";
export type { AcceptedPush } from "./parameter-server/service.ts";
export type { ServerReport } from "./parameter-server/store.ts";
export {
  type Parameter,
  type ParameterArray,
  type ParameterDeclaration,
  type ParameterDType,
  ParameterSet,
} from "./parameter-set.ts";
export {
  type Bubble,
  idealBubble,
  measureBubble,
  type TimelineEvent,
} from "./pipeline/bubble.ts";
export {
  type PipelineOptions,
  PipelineParallel,
  type PipelineStep,
} from "./pipeline/pipeline-parallel.ts";
export type { PipelineSchedule } from "./pipeline/schedule.ts";
export type { Stage, StagePass, VirtualWork } from "./pipeline/stage.ts";
export { Random } from "./random.ts";
export { type SampledBatch, Sampler, type SamplerOptions } from "./sampler.ts";
export type { RankStateful, State, Stateful, StateTensor, StateValue } from "./state.ts";
export {
  gatherTensor,
  type Part,
  partOf,
  type SplitOptions,
  splitTensor,
  type Tensor,
} from "./tensor/split.ts";
export { type Shard, type ShardStep, TensorParallel } from "./tensor/tensor-parallel.ts";
export type { HeldBytes, MemoryUse, ShardedMemory, ShardingStage } from "./zero/flat-parameters.ts";
export type { ParameterShape, ShardedParallelOptions } from "./zero/options.ts";
export { ShardedParallel } from "./zero/sharded-parallel.ts";
