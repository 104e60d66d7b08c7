/**
 * Data parallelism: every rank has the whole model and a part of the samples; gradients are summed over all ranks.
 *
 * Gradients are those of the **sum** of the losses over samples, and are divided once, by the weight of all samples of all
 * ranks. So batches may be uneven or empty, and a rank may have any number of micro-batches. The result is the mean over all
 * samples, as on one rank with all of them.
 *
 * The caller computes on the host. Each bucket of gradients is copied to the backend's memory when it is issued, and back when
 * the step ends.
 */
import type { Communicator } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertCommunicator, assertCount, assertParameters, isCount } from "../argument-checks.ts";
import { CallGuard } from "../call-guard.ts";
import { type Parameter, type ParameterSet, zerosOf } from "../parameter-set.ts";
import { assertState, assertStates, type RankStateful, type State } from "../state.ts";
import {
  assertStepArguments,
  BackwardPass,
  type MicroBatch,
  type Ready,
  runBackward,
} from "./backward.ts";
import { bucketsOf } from "./buckets.ts";
import {
  exchangeSteps,
  finishStep,
  leavesInStep,
  type RankStep,
  type StepStats,
} from "./finish-step.ts";
import { type DataParallelOptions, type Settings, settingLines, settingsOf } from "./options.ts";
import { syncParameters } from "./sync-parameters.ts";
import {
  type ActiveBucket,
  exchangeOf,
  residualState,
  restoreResiduals,
  sumOfResiduals,
} from "./wire.ts";

/** Trains one model on all ranks of a communicator. Made by `DataParallel.create`. */
export class DataParallel implements RankStateful {
  readonly parameters: ParameterSet;
  readonly #comm: Communicator;
  readonly #settings: Settings;
  readonly #buckets: readonly ActiveBucket[];
  readonly #bucketOf: Map<Parameter, number>;
  readonly #guard: CallGuard;
  #step = 0;

  private constructor(
    comm: Communicator,
    parameters: ParameterSet,
    inUse: readonly Parameter[],
    settings: Settings,
  ) {
    const { bucketBytes, wire, wireScale, divided } = settings;
    this.parameters = parameters;
    this.#comm = comm;
    this.#settings = settings;
    this.#guard = new CallGuard(
      "DataParallel",
      comm,
      () => this.#release(),
      () => this.#buckets.flatMap(({ exchange: { op } }) => op ?? []),
    );
    const buckets = bucketsOf(inUse, bucketBytes, divided).filter(({ length }) => length > 0);
    this.#buckets = buckets.map((bucket) => {
      const { dtype, length } = bucket;
      return {
        bucket,
        staging: zerosOf(dtype, length),
        exchange: exchangeOf(comm, wire, wireScale, dtype, length),
      };
    });
    this.#bucketOf = new Map(
      this.#buckets.flatMap(({ bucket }, index) =>
        bucket.parameters.map(({ parameter }): [Parameter, number] => [parameter, index]),
      ),
    );
  }

  /**
   * Checks that all ranks have the same model, gives them the root's values, and prepares the buckets.
   *
   * - **Parameters** are matched by name; ranks may declare them in any order. Buckets follow the root's order of declaration,
   *   taken as the order of use, from its end.
   * - **Cost**: comparisons of digests, also over the ranks of `divided`, and a broadcast of the model.
   *
   * @throws InvalidArgumentError on this rank for an invalid option.
   * @throws CollectiveMismatchError on all ranks, by name, for a parameter or option that differs; no value was changed. Over
   * the ranks of `divided`, for another `maxGradientNorm` or `nonFinite`.
   * @example
   * const trainer = await DataParallel.create(comm, model, { maxGradientNorm: 1 });
   */
  static async create(
    comm: Communicator,
    parameters: ParameterSet,
    options: DataParallelOptions = {},
  ): Promise<DataParallel> {
    assertCommunicator("DataParallel.create", comm);
    assertParameters("DataParallel.create", parameters);
    const settings = settingsOf(options, comm.size);
    const inUse = await syncParameters(comm, parameters, {
      trainer: "DataParallel",
      settings,
      options: settingLines(settings),
    });
    return new DataParallel(comm, parameters, inUse, settings);
  }

  /** Number of buckets of gradients. */
  get buckets(): number {
    return this.#buckets.length;
  }

  /**
   * Runs backward over this rank's micro-batches and leaves the mean gradient of all ranks' samples in the parameters.
   *
   * - **Collective**: every rank calls it equally often, with any number of micro-batches and samples, also none.
   * - **Overlap**: buckets are issued during the last micro-batch, as soon as their gradients are ready, in one order on all
   *   ranks. Make no other calls on the communicator meanwhile (`split` gives another).
   * - **Rounding**: gradients are added up in the parameters' dtype, summed over ranks in the order of the backend's plan,
   *   and divided once. All ranks hold the same bits.
   * - **Cost**: an all-reduce of every bucket, or two all-gathers with `topK`, and an all-gather of 24 bytes and a bit for every
   *   parameter. With `divided` two more of 8 bytes.
   *
   * @throws InvalidArgumentError on this rank for an invalid argument, a gradient of another length or a gradient reported
   * twice; on all ranks when none had a sample.
   * @throws UnusedParametersError, NonFiniteGradientError on all ranks; gradients are zero, and the next step may follow.
   * @throws CommClosedError when an earlier step failed in the middle, which leaves ranks out of step.
   * @example
   * const stats = await trainer.step([batch], (each, ready) => model.backward(each, ready));
   * optimizer.step();
   */
  async step<B>(
    microBatches: readonly B[],
    backward: (batch: B, ready: Ready) => MicroBatch | PromiseLike<MicroBatch>,
  ): Promise<StepStats> {
    assertStepArguments("DataParallel", microBatches, backward);
    // Failed until the step ends: in the middle of a step ranks are out of step with each other.
    let inStep = false;
    const act = async (): Promise<StepStats> => {
      const began = this.#settings.now();
      try {
        const all = await this.#exchangeGradients(microBatches, backward);
        // From here on every rank has the same facts and the same outcome, so that a refusal leaves them in step.
        inStep = true;
        const [parameters, settings] = [this.parameters, this.#settings];
        const gradients = [...parameters];
        const summed = { action: "DataParallel.step", parameters, gradients, settings };
        const concluded = await finishStep(summed, all);
        for (const { exchange } of this.#buckets) exchange.commit();
        this.#step++;
        return { step: this.#step, ...concluded, stepMs: this.#settings.now() - began };
      } catch (error) {
        this.parameters.zeroGradients();
        throw error;
      }
    };
    return await this.#guard.run("step", "step", act, (error) => inStep && leavesInStep(error));
  }

  /** Runs backward and sums the gradients; returns the reports of all ranks. */
  async #exchangeGradients<B>(
    microBatches: readonly B[],
    backward: (batch: B, ready: Ready) => MicroBatch | PromiseLike<MicroBatch>,
  ): Promise<RankStep[]> {
    const pass = new BackwardPass(this.parameters, this.#buckets, this.#bucketOf);
    const sums = await runBackward(pass, microBatches, backward);
    pass.finish();
    for (const bucket of this.#buckets) await collect(bucket);
    const used = [...this.parameters].map((parameter) => pass.used.has(parameter));
    return exchangeSteps(this.#comm, { ...sums, used });
  }

  /** The number of steps, and with `topK` this rank's unsent gradients, by parameter. */
  state(): State {
    return { values: { step: this.#step }, tensors: residualState(this.#buckets) };
  }

  restore(state: State): void {
    this.#guard.assertIdle("restore");
    assertState("restore", state);
    const { step } = state.values;
    if (!isCount(step)) {
      throw invalid("restore", "step", textOf(step), "the state of a DataParallel");
    }
    restoreResiduals(this.#buckets, state);
    this.#step = step;
  }

  /** Rank r of n takes the sum of the unsent gradients of ranks r, r + n, r + 2n, …, so that none is lost. */
  reshard(states: readonly State[], rank: number, size: number): void {
    assertStates("reshard", states);
    assertCount("reshard", "size", size, 1);
    if (!isCount(rank) || rank >= size) {
      throw invalid("reshard", "rank", textOf(rank), `a rank of 0..${size - 1}`);
    }
    const steps = [...new Set(states.map(({ values }) => values["step"]))];
    if (steps.length > 1) {
      throw invalid("reshard", "step", steps.join(" and "), "states after one number of steps");
    }
    this.restore(sumOfResiduals(states, rank, size));
  }

  /** Frees the buffers of the buckets after a running step and its calls; the communicator stays open. */
  [Symbol.dispose](): void {
    this.#guard.dispose();
  }

  #release(): void {
    for (const { exchange } of this.#buckets) exchange.dispose();
  }
}

/** Copies the sums of a bucket to its parameters. */
async function collect({ bucket, staging, exchange }: ActiveBucket): Promise<void> {
  await exchange.collect(staging);
  for (const { parameter, begin } of bucket.parameters) {
    parameter.gradient.set(staging.subarray(begin, begin + parameter.length));
  }
}
