/** Every optional field of a public argument may be given as `undefined`, under `exactOptionalPropertyTypes` too. */
import type * as api from "twinccl";
import type * as algorithms from "twinccl/algorithms";
import type * as bench from "twinccl/bench";
import type * as nccl from "twinccl/nccl";
import type * as parallel from "twinccl/parallel";
import type * as models from "twinccl/parallel/models";
import type * as sim from "twinccl/sim";
import type * as testing from "twinccl/testing";
import type * as webgpu from "twinccl/webgpu";
import { describe, expectTypeOf, test } from "vitest";

/** The optional fields of a type that refuse `undefined`. */
type Closed<T> = {
  [K in keyof T]-?: Record<never, never> extends Pick<T, K>
    ? { [P in K]: undefined } extends Pick<T, K>
      ? never
      : K
    : never;
}[keyof T];

/** The fields of several types. */
type AnyClosed<Types extends readonly unknown[]> = {
  [At in keyof Types]: Closed<Types[At]>;
}[number];

test("a field that refuses undefined is found", () => {
  expectTypeOf<Closed<{ a?: number; b: number; c?: number | undefined }>>().toEqualTypeOf<"a">();
});

describe("undefined is accepted by every optional field", () => {
  test("of calls", () => {
    expectTypeOf<
      AnyClosed<
        [
          api.AllocOptions,
          api.AllGatherArgs,
          api.AllGathervArgs,
          api.AllReduceArgs,
          api.AllToAllArgs,
          api.AllToAllvArgs,
          api.BroadcastArgs,
          api.CallOptions,
          api.GatherArgs,
          api.Question,
          api.RecvArgs,
          api.ReduceArgs,
          api.ReduceScatterArgs,
          api.ReduceScattervArgs,
          api.ScatterArgs,
          api.SendArgs,
          api.SendRecvArgs,
          api.SplitArgs,
        ]
      >
    >().toBeNever();
  });

  test("of worlds and backends", () => {
    expectTypeOf<
      AnyClosed<
        [
          api.ConnectOptions,
          api.RebuildOptions,
          api.WorldOptions,
          nccl.NcclOptions,
          nccl.NcclPin,
          sim.LinkOptions,
          sim.SimOptions,
          sim.WasmOptions,
          webgpu.ExecutorSettings,
          webgpu.RequestedLimits,
          webgpu.WebgpuOptions,
        ]
      >
    >().toBeNever();
  });

  test("of algorithms", () => {
    expectTypeOf<
      AnyClosed<
        [
          algorithms.Algorithm,
          algorithms.AlgorithmChoice,
          algorithms.CallShape,
          algorithms.Cost,
          algorithms.EventOptions,
          algorithms.Forced,
          algorithms.InvarianceQuestion,
          algorithms.NcclSettings,
          algorithms.PlanOptions,
          algorithms.PlanQuestion,
          algorithms.PredictedCall,
          algorithms.ProgramHead,
          algorithms.RunOptions,
          algorithms.StepOptions,
          algorithms.TimedQuestion,
          NonNullable<algorithms.TimedQuestion["mode"]>,
        ]
      >
    >().toBeNever();
  });

  test("of training", () => {
    expectTypeOf<
      AnyClosed<
        [
          models.MlpOptions,
          models.ModelOptions,
          models.TransformerShape,
          parallel.AdamWOptions,
          parallel.CheckpointOptions,
          parallel.CheckpointParts,
          parallel.CosineOptions,
          parallel.CrossEntropyArgs,
          parallel.DataParallelOptions,
          parallel.ExpertOptions,
          parallel.LionOptions,
          parallel.MicroBatch,
          parallel.MseArgs,
          parallel.ParameterDeclaration,
          parallel.ParameterServerOptions,
          parallel.PipelineOptions,
          parallel.SamplerOptions,
          parallel.SgdOptions,
          parallel.ShardedParallelOptions,
          parallel.SplitOptions,
          parallel.StepOptions,
          parallel.TimelineEvent,
          parallel.TopKOptions,
          parallel.WarmUpOptions,
          NonNullable<Parameters<parallel.Checkpoints["load"]>[1]>,
        ]
      >
    >().toBeNever();
  });

  test("of measurements and tests", () => {
    expectTypeOf<
      AnyClosed<
        [
          bench.BenchOptions,
          bench.CallShape,
          bench.SizeSweep,
          bench.TableStyle,
          testing.CheckOptions,
          testing.ConformanceOptions,
          testing.DTypeConstraints,
          testing.LifeCycleConstraints,
          testing.PayloadConstraints,
          testing.ProgramConstraints,
          testing.RanksUnderTest,
          testing.ReduceOpConstraints,
          testing.RunOptions,
          testing.SizeConstraints,
        ]
      >
    >().toBeNever();
  });
});
