/**
 * Data parallelism with sharded memory: each rank holds an equal part of optimizer state, gradients and parameter values (ZeRO,
 * https://arxiv.org/abs/1910.02054, stages 1 to 3).
 *
 * Gradients are summed by reduce-scatter, each rank updates its own part, and values are collected by all-gather. The numbers
 * equal those of `DataParallel` with an `Optimizer`, up to the fold order of sums.
 */

import type { Communicator } from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import { assertCommunicator, assertParameters } from "../argument-checks.ts";
import { CallGuard } from "../call-guard.ts";
import {
  addReport,
  assertGradient,
  assertStepArguments,
  type MicroBatch,
  type Ready,
  runMicroBatch,
  type Visit,
} from "../data-parallel/backward.ts";
import {
  exchangeSteps,
  finishStep,
  leavesInStep,
  type RankStep,
  type StepStats,
} from "../data-parallel/finish-step.ts";
import { syncParameters } from "../data-parallel/sync-parameters.ts";
import { gatherNumbers } from "../host-collectives.ts";
import { Optimizer } from "../optimizers/optimizer.ts";
import type { Parameter, ParameterSet } from "../parameter-set.ts";
import { assertStates, type RankStateful, type State } from "../state.ts";
import {
  type FlatParameterHandle,
  LayerShards,
  layersOf,
  MemoryMeter,
  type ShardedMemory,
} from "./flat-parameters.ts";
import { MicroBatchStep } from "./micro-batch-step.ts";
import {
  layerName,
  ruleLine,
  ruleOf,
  type ShardedParallelOptions,
  type ShardedSettings,
  shardedLines,
  shardedSettingsOf,
} from "./options.ts";
import {
  assertNoneLost,
  type LiveShard,
  reshardStates,
  restoreShards,
  shardState,
} from "./shard-state.ts";

/** Trains one model on all ranks of a communicator, each of which holds a part of its state. Made by `ShardedParallel.create`. */
export class ShardedParallel implements RankStateful {
  readonly parameters: ParameterSet;
  readonly #comm: Communicator;
  readonly #settings: ShardedSettings;
  readonly #meter = new MemoryMeter();
  readonly #layers: readonly LayerShards[];
  readonly #ranges: readonly LiveShard[];
  readonly #optimizer: Optimizer;
  readonly #guard: CallGuard;
  #step = 0;

  private constructor(
    comm: Communicator,
    parameters: ParameterSet,
    inUse: readonly Parameter[],
    settings: ShardedSettings,
  ) {
    const { stage, layerOf, divided } = settings;
    this.parameters = parameters;
    this.#comm = comm;
    this.#settings = settings;
    this.#guard = new CallGuard(
      "ShardedParallel",
      comm,
      () => this.#dispose(),
      () => this.#flatParameters.flatMap(({ posted }) => posted),
    );
    const context = { comm, set: parameters, stage, meter: this.#meter };
    const plans = layersOf(inUse, layerOf, divided, comm.size);
    this.#layers = plans.map((plan) => new LayerShards(plan, context));
    this.#ranges = this.#layers.flatMap(liveShards);
    this.#optimizer = new Optimizer(this.#ranges, ({ name }) =>
      ruleOf(settings, parameters.get(name)),
    );
    this.#meter.add("optimizer", this.#optimizer.stateBytes);
  }

  /**
   * Checks that all ranks have the same model, gives them the root's values, and divides the memory.
   *
   * - **The set loses its memory** to the trainer: `parameters.values(dtype)` and gradients are refused. At stage 3 a
   *   parameter's `value` can be read while its layer is visited, or after `gatherValues`.
   * - **Odd sizes** are padded internally, invisibly to parameters and checkpoints.
   * - **Cost**: comparisons of digests, also over the ranks of `divided`, and a broadcast of the model.
   *
   * @throws InvalidArgumentError on this rank for an invalid option.
   * @throws CollectiveMismatchError on all ranks, by name, for a parameter, its layer, its rule, or an option that differs. Of
   * rules, the names, settings and first two rates are compared.
   * @example
   * const trainer = await ShardedParallel.create(comm, model, { stage: 2, rule: adamW({ learningRate: 3e-4 }) });
   */
  static async create(
    comm: Communicator,
    parameters: ParameterSet,
    options: ShardedParallelOptions,
  ): Promise<ShardedParallel> {
    assertCommunicator("ShardedParallel.create", comm);
    assertParameters("ShardedParallel.create", parameters);
    const settings = shardedSettingsOf(options, comm.size);
    const inUse = await syncParameters(comm, parameters, {
      trainer: "ShardedParallel",
      settings,
      options: shardedLines(settings),
      also: {
        of: (name) =>
          ` in layer ${layerName(settings, name)}, by ${ruleLine(settings, parameters.get(name))}`,
        names: "layers and rules",
      },
    });
    return new ShardedParallel(comm, parameters, inUse, settings);
  }

  /** The layers, in the order in which they are visited forward. */
  get layers(): readonly string[] {
    return this.#layers.map(({ name }) => name);
  }

  /** The memory that this rank holds, and its peak. */
  get memory(): ShardedMemory {
    return this.#meter.report();
  }

  /** The rate of the next update: of the named parameter, or of the first one. */
  learningRate(name?: string): number {
    if (name !== undefined) {
      // A parameter without elements is in no flat parameter; an uneven division may leave it empty only on this rank.
      const parameter = this.parameters.get(name);
      if (parameter.length === 0) {
        return ruleOf(this.#settings, parameter).schedule(this.#optimizer.steps);
      }
    }
    return this.#optimizer.learningRate(name);
  }

  /**
   * Runs backward over this rank's micro-batches, and updates the parameters by the mean gradient of all ranks' samples.
   *
   * - **Backward** reports as in `DataParallel.step`; in addition `visit` announces the layer that is computed next: first to
   *   last forward, and back. Stage 3 needs the visits to gather and free layer by layer; at stage 2 they bound the gradients
   *   under way; at stage 1 they have no effect. A pipeline takes `visit` as an argument: see `Visit.passes`.
   * - **Collective**: every rank calls it equally often, with any number of micro-batches; ranks with fewer take part in the
   *   calls of the others.
   * - **Rounding**: as `DataParallel.step`, with sums over ranks in the order of the plan of a reduce-scatter, micro-batch by
   *   micro-batch from stage 2 on.
   * - **Cost**: at stage 1 a reduce-scatter of the gradients and an all-gather of the values. At stage 2 a reduce-scatter for
   *   every micro-batch; at stage 3 two all-gathers for every micro-batch instead of the one. In addition three all-gathers of
   *   few bytes.
   *
   * @throws InvalidArgumentError on this rank for a gradient of another length or out of order, or on all when no rank had a
   * sample.
   * @throws UnusedParametersError, NonFiniteGradientError on all ranks; no value was changed, and the next step may follow.
   * @throws CommClosedError when an earlier step failed in the middle, which leaves ranks out of step.
   * @example
   * const stats = await trainer.step([batch], (each, ready, visit) => model.backward(each, ready, visit));
   */
  async step<B>(
    microBatches: readonly B[],
    backward: (batch: B, ready: Ready, visit: Visit) => MicroBatch | PromiseLike<MicroBatch>,
  ): Promise<StepStats> {
    assertStepArguments("ShardedParallel", microBatches, backward);
    let inStep = false;
    const act = async (): Promise<StepStats> => {
      const began = this.#settings.now();
      const ranks = await this.#reduceGradients(microBatches, backward);
      inStep = true;
      const concluded = await finishStep(
        {
          action: "ShardedParallel.step",
          parameters: this.parameters,
          gradients: this.#ranges,
          shardedOver: this.#comm,
          settings: this.#settings,
        },
        ranks,
      );
      this.#optimizer.step();
      inStep = false;
      if (this.#settings.stage < 3) await this.#gatherAll();
      this.#step++;
      return { step: this.#step, ...concluded, stepMs: this.#settings.now() - began };
    };
    return await this.#guard.run("step", "step", act, (error) => inStep && leavesInStep(error));
  }

  /**
   * Makes the values of all parameters readable on this rank: to evaluate or export the model. Collective. At stage 3 they take
   * memory until `releaseValues` or the next step.
   *
   * - **Cost**: an all-gather of 8 bytes; where any rank lacks values, an all-gather of all of them on every rank.
   */
  async gatherValues(): Promise<void> {
    await this.#guard.run("gatherValues", "gatherValues", async () => {
      const lacks = await gatherNumbers(this.#comm, [this.#lacksValues]);
      if (lacks.some(([each]) => each === 1)) await this.#gatherAll();
    });
  }

  /**
   * Frees the memory of `gatherValues`; has no effect before stage 3.
   *
   * @throws CommClosedError while a step is running, which frees its own memory.
   */
  releaseValues(): void {
    this.#guard.assertIdle("releaseValues");
    this.#releaseLayers();
  }

  /**
   * This rank's part of values and optimizer state, and the number of steps. Belongs to `perRank` in checkpoints, which any
   * number of ranks may load; the model itself is not needed there.
   */
  state(): State {
    return shardState(this.#step, this.#ranges, this.#optimizer);
  }

  /**
   * Restores this rank's part. Values can be read after the next step, or after `gatherValues`.
   *
   * @throws InvalidArgumentError, before any change, for a part of another model, or divided otherwise.
   * @throws CommClosedError while a step is running.
   */
  restore(state: State): void {
    this.#guard.assertIdle("restore");
    this.#step = restoreShards(state, this.#ranges, this.#optimizer);
    for (const layer of this.#layers) layer.release();
  }

  /** Joins the parts of other ranks and takes this rank's own. */
  reshard(states: readonly State[], _rank: number, size: number): void {
    this.#guard.assertIdle("reshard");
    assertStates("reshard", states);
    // Elsewhere other ranks may have other parameters, such as those of other stages of a pipeline.
    if (size === this.#comm.size) assertNoneLost(states, this.parameters);
    this.restore(reshardStates(states, this.#ranges, this.state()));
  }

  /** Frees the buffers of calls after a running step; the communicator stays open. */
  [Symbol.dispose](): void {
    this.#guard.dispose();
  }

  get #flatParameters(): FlatParameterHandle[] {
    return this.#layers.flatMap(({ flatParameters }) => flatParameters);
  }

  #dispose(): void {
    for (const flat of this.#flatParameters) flat.dispose();
  }

  #releaseLayers(): void {
    if (this.#settings.stage === 3) for (const layer of this.#layers) layer.release();
  }

  /** Runs backward and sums the gradients into this rank's ranges. */
  async #reduceGradients<B>(
    microBatches: readonly B[],
    backward: (batch: B, ready: Ready, visit: Visit) => MicroBatch | PromiseLike<MicroBatch>,
  ): Promise<RankStep[]> {
    const { stage, prefetch } = this.#settings;
    for (const flat of this.#flatParameters) flat.clearGradients();
    this.#releaseLayers();
    const announced = await gatherNumbers(this.#comm, [microBatches.length, this.#lacksValues]);
    if (stage < 3 && announced.some(([, lacks]) => lacks === 1)) await this.#gatherAll();
    const steps = largest(announced.map(([count]) => count as number));
    const sums = { loss: 0, samples: 0, weight: 0 };
    const used = new Set<Parameter>();
    for (let at = 0; at < steps; at++) {
      const last = at === steps - 1;
      const onAllRanks = announced.every(([count]) => (count as number) > at);
      const step = new MicroBatchStep(this.#layers, {
        comm: this.#comm,
        stage,
        prefetch,
        last,
        onAllRanks,
      });
      const takes = {
        ready: (name: string, gradient: Parameters<Ready>[1], scale: number): void => {
          const parameter = this.parameters.get(name);
          assertGradient(parameter, gradient, scale);
          step.ready(parameter, gradient, scale);
          used.add(parameter);
        },
      };
      if (at < microBatches.length) {
        const visit: Visit = Object.assign((layer: string) => ignoreRejection(step.visit(layer)), {
          passes: (...order: Parameters<Visit["passes"]>) => step.passes(...order),
          skip: () => ignoreRejection(step.skip()),
          endPass: () => step.endPass(),
        });
        const batch = microBatches[at] as B;
        addReport(sums, await runMicroBatch(takes, (ready) => backward(batch, ready, visit)), at);
      } else {
        await step.runEmpty();
      }
      await step.finish();
    }
    this.#releaseLayers();
    const flags = [...this.parameters].map((parameter) => used.has(parameter));
    return exchangeSteps(this.#comm, { ...sums, used: flags });
  }

  /** 1 where some values cannot be read on this rank: it has restored its part, or released the whole. */
  get #lacksValues(): number {
    return this.#layers.some(({ isReadable }) => !isReadable) ? 1 : 0;
  }

  /** Gathers all layers' values, one layer ahead; also on ranks that have them, so that all make the same calls. */
  async #gatherAll(): Promise<void> {
    for (const layer of this.#layers) layer.release();
    for (const [at, layer] of this.#layers.entries()) {
      layer.startGather();
      this.#layers[at + 1]?.startGather();
      await layer.finishGather();
    }
  }
}

/** The promise, with a handler, so that an unawaited failure does not end the process: the step finds missing visits itself. */
function ignoreRejection(visit: Promise<void>): Promise<void> {
  visit.catch(() => undefined);
  return visit;
}

function liveShards({ flatParameters }: LayerShards): LiveShard[] {
  return flatParameters.flatMap(({ ranges, shard, gradientShard }) =>
    ranges.map(({ parameter: { name, dtype, shape: whole }, begin, end, at }) => {
      const [from, to] = [at, at + end - begin];
      const value = shard.subarray(from, to);
      const gradient = gradientShard.subarray(from, to);
      return { name, dtype, shape: [end - begin], value, gradient, begin, end, whole };
    }),
  );
}
