/**
 * Pipeline parallelism: rank r runs stage r of a model, and micro-batches follow one another through the stages.
 *
 * Each stage adds up the gradients of its own parameters in the order of the micro-batches. So they have the bits of a run of
 * all stages on one rank, in every schedule. `DataParallel` divides by the weight of the samples, and combines several
 * pipelines.
 */
import type { Communicator } from "../../api/index.ts";
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { assertCommunicator, assertHasFunctions, assertOneOf } from "../argument-checks.ts";
import { CallGuard } from "../call-guard.ts";
import type { MicroBatch, Visit } from "../data-parallel/backward.ts";
import type { TakeGradient } from "../layers/layer.ts";
import type { ParameterDType } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import { actionsOf, type PipelineSchedule, passesOf } from "./schedule.ts";
import { type Stage, StageStep, type VirtualWork } from "./stage.ts";
import { StageTransfers } from "./stage-transfers.ts";

/** Options of `PipelineParallel.create`. */
export interface PipelineOptions {
  /** `1f1b` when left out; the same on every rank. */
  readonly schedule?: PipelineSchedule | undefined;
  /** Dtype of the messages between stages; `float32` when left out. The same on every rank. */
  readonly dtype?: ParameterDType | undefined;
  /** Virtual compute of this stage by micro-batch, passed to `comm.work` before it computes; none when left out. */
  readonly work?: VirtualWork | undefined;
}

const kinds: OptionKinds<PipelineOptions> = { schedule: true, dtype: true, work: true };

/** The result of a step; all but `held` is the same on all ranks. */
export interface PipelineStep extends Complete<MicroBatch> {
  /** Most forward passes that this stage kept at once: of all micro-batches with `gpipe`, at most `size - rank` with `1f1b`. */
  readonly held: number;
}

/** A pipeline over all ranks of a communicator. Made by `PipelineParallel.create`. */
export class PipelineParallel<Batch> {
  readonly schedule: PipelineSchedule;
  readonly #comm: Communicator;
  readonly #stage: Stage<Batch>;
  readonly #work: VirtualWork | undefined;
  readonly #transfers: StageTransfers;
  readonly #guard: CallGuard;

  private constructor(comm: Communicator, stage: Stage<Batch>, options: PipelineOptions) {
    const { schedule = "1f1b", dtype = "float32", work } = options;
    this.schedule = schedule;
    this.#comm = comm;
    this.#stage = stage;
    this.#work = work;
    this.#transfers = new StageTransfers(comm, dtype);
    this.#guard = new CallGuard("PipelineParallel", comm, () => this.#transfers.dispose());
  }

  /**
   * Joins the ranks' stages to a pipeline, in the order of ranks.
   *
   * - **Collective**: the same schedule and dtype on every rank. **Cost**: a comparison.
   *
   * @throws InvalidArgumentError on this rank for an invalid option.
   * @throws CollectiveMismatchError on all ranks for options that differ.
   * @example
   * const stage = transformerStage(comm, shape);
   * const pipeline = await PipelineParallel.create(comm, stage, { schedule: "1f1b" });
   */
  static async create<Batch>(
    comm: Communicator,
    stage: Stage<Batch>,
    options: PipelineOptions = {},
  ): Promise<PipelineParallel<Batch>> {
    assertCommunicator("PipelineParallel.create", comm);
    assertOptions("PipelineParallel.create", options, kinds);
    assertHasFunctions("PipelineParallel.create", "stage", stage, ["inputLength", "forward"]);
    const { schedule = "1f1b", dtype = "float32", work } = options;
    assertOneOf("PipelineParallel", "schedule", schedule, ["gpipe", "1f1b"]);
    assertOneOf("PipelineParallel", "dtype", dtype, ["float32", "float64"]);
    if (work !== undefined) {
      const known = { forwardNs: true, backwardNs: true } as const;
      assertOptions("PipelineParallel.create", work, known, { path: "work" });
    }
    for (const field of ["forwardNs", "backwardNs"] as const) {
      const value = work === undefined ? 0 : work[field];
      if (typeof value === "number" && value >= 0 && value < Number.POSITIVE_INFINITY) continue;
      throw invalid(
        "PipelineParallel",
        `work.${field}`,
        textOf(value),
        "nanoseconds of at least 0",
      );
    }
    await assertSameOnRanks(comm, {
      action: "PipelineParallel.create",
      kind: "option",
      lines: new Map([
        ["schedule", schedule],
        ["dtype", dtype],
      ]),
      hint: "give every stage the same schedule and dtype",
    });
    return new PipelineParallel(comm, stage, options);
  }

  /**
   * Runs all micro-batches forward and backward, and reports the sums of this stage's gradients; as `Model.backward`, by all
   * ranks together with the same micro-batches.
   *
   * - **Collective**: the same number of micro-batches on every rank, which may be 0.
   * - **Gradients** are added up in the order of the micro-batches, in every schedule. Each is reported once, during the
   *   backward of the last micro-batch, so that a `DataParallel` around it sends its buckets meanwhile.
   * - **With `visit`**, passed by a `ShardedParallel` around it, the stage holds neither all values nor all gradients. Its
   *   layers are visited forward and back for each micro-batch, and gradients are reported by micro-batch. Pipelines of other
   *   data parallel lines may have another number of micro-batches; those with fewer make additional visits without computing.
   * - **Messages**: a stage's outputs and the gradients by its inputs for every micro-batch, and a comparison and a broadcast
   *   of 24 bytes. Messages in both directions between neighbours form one group, which cannot deadlock.
   *
   * @throws InvalidArgumentError on this rank for a stage's values or gradients of another length or dtype; the others get
   * `RemoteRankError` once the program of this rank has thrown it on.
   * @throws CollectiveMismatchError on all ranks for another number of micro-batches; on neighbours for an output or a gradient
   * of another length than expected.
   * @throws CommClosedError when an earlier step failed in the middle, which leaves stages out of step.
   * @example
   * const stats = await trainer.step([microBatches], (all, ready) => pipeline.backward(all, ready));
   * const others = await sharded.step([microBatches], (all, ready, visit) => pipeline.backward(all, ready, visit));
   */
  async backward(
    microBatches: readonly Batch[],
    take: TakeGradient,
    visit?: Visit,
  ): Promise<PipelineStep> {
    if (!Array.isArray(microBatches)) {
      throw invalid(
        "PipelineParallel",
        "microBatches",
        textOf(microBatches),
        "an array of them, empty where there is none",
      );
    }
    if (typeof take !== "function")
      throw invalid("PipelineParallel", "take", textOf(take), "a function");
    if (visit !== undefined && typeof visit?.passes !== "function") {
      const found = `${textOf(visit)} without passes()`;
      const needed = "the visit that ShardedParallel.step gives to backward";
      throw invalid("PipelineParallel", "visit", found, needed);
    }
    let begun = false;
    const act = async (): Promise<PipelineStep> => {
      await assertSameOnRanks(this.#comm, {
        action: "PipelineParallel.backward",
        kind: "number of",
        lines: new Map([["micro-batches", String(microBatches.length)]]),
        hint: "give every stage the same micro-batches",
      });
      begun = true;
      return await this.#run(microBatches, take, visit);
    };
    return await this.#guard.run("backward", "step", act, () => !begun);
  }

  async #run(
    microBatches: readonly Batch[],
    take: TakeGradient,
    visit: Visit | undefined,
  ): Promise<PipelineStep> {
    const { rank, size } = this.#comm;
    const count = microBatches.length;
    const passes = (rounds: number) => passesOf(this.schedule, { rank, size, rounds });
    const rounds = (await visit?.passes(count, passes)) ?? count;
    const [comm, stage, work] = [this.#comm, this.#stage, this.#work];
    const step = new StageStep({ comm, stage, work, batches: microBatches, take, visit });
    const position = { rank, size, microBatches: count, rounds };
    for (const action of actionsOf(this.schedule, position))
      await step.run(action, this.#transfers);
    step.finish();
    return { ...(await broadcastTotals(this.#comm, step.totals)), held: step.held };
  }

  /** Frees the buffers of messages after a running step; the communicator stays open. */
  [Symbol.dispose](): void {
    this.#guard.dispose();
  }
}

/** The loss of the last stage, on every rank. Costs a broadcast of 24 bytes. */
async function broadcastTotals(
  comm: Communicator,
  { loss, samples, weight }: Complete<MicroBatch>,
): Promise<Complete<MicroBatch>> {
  const buffer = comm.alloc("float64", 3).copyFrom(Float64Array.of(loss, samples, weight));
  try {
    await comm.broadcast({ recv: buffer, root: comm.size - 1 });
    const totals = await buffer.toHost();
    return {
      loss: totals[0] as number,
      samples: totals[1] as number,
      weight: totals[2] as number,
    };
  } finally {
    buffer.dispose();
  }
}
