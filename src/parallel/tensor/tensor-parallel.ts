/**
 * One step of a model with a custom division over ranks: each shard computes a part of the output, and the parts are joined.
 */
import type { Communicator } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertCommunicator, assertHasFunctions, isCount } from "../argument-checks.ts";
import { CallGuard } from "../call-guard.ts";
import { combineNorms } from "../divided.ts";
import { gatherNumbers, sumOverRanks } from "../host-collectives.ts";
import { isParameterArray, type ParameterArray, parameterDTypeOf } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import { elementsOf } from "../state.ts";

/** The result of a shard's step, or of all shards together. */
export interface ShardStep {
  /** A term of the output; of all shards, the sum. */
  readonly output: ParameterArray;
  readonly shape: readonly number[];
  /** Mean loss of its samples; of all shards, the mean over all their samples. */
  readonly loss: number;
  /** Norm of the gradient of its own parameters; of all shards, the norm of the gradient of all. */
  readonly gradientNorm: number;
  /** Number of samples in the mean; of all shards, their sum. */
  readonly samples: number;
}

/** One rank's part of a model. */
export interface Shard<Batch> {
  /** Computes its part of one step. */
  step(batch: Batch): ShardStep | PromiseLike<ShardStep>;
}

/**
 * Runs a shard on every rank of a communicator and joins the results.
 *
 * @throws InvalidArgumentError for a shard without a `step`.
 * @example
 * const model = new TensorParallel(comm, { step: (batch) => myShard(batch) });
 * const { output, loss } = await model.step(batch);
 */
export class TensorParallel<Batch> {
  readonly #comm: Communicator;
  readonly #shard: Shard<Batch>;
  readonly #guard: CallGuard;

  constructor(comm: Communicator, shard: Shard<Batch>) {
    assertCommunicator("TensorParallel", comm);
    assertHasFunctions("TensorParallel", "shard", shard, ["step"]);
    this.#comm = comm;
    this.#shard = shard;
    this.#guard = new CallGuard("TensorParallel", comm, () => {});
  }

  /**
   * One step of all shards; resolves to the same result on every rank, bit by bit.
   *
   * - **Joining**: outputs are summed in the order of the backend's plan, and the loss is the mean weighted by samples. The
   *   norm is the root of the sum of squares, because shards own different parameters.
   * - **Collective**: every rank calls it equally often, one step after the other. **Cost**: a comparison, an all-reduce of the output, an all-gather of
   *   24 bytes.
   *
   * @throws InvalidArgumentError on this rank for an output that does not fit its shape, or an invalid number; on all ranks
   * when there was no sample.
   * @throws CollectiveMismatchError on all ranks when outputs differ in shape or dtype; they are never padded or truncated.
   * @throws CommClosedError while another step is running.
   */
  step(batch: Batch): Promise<ShardStep> {
    return this.#guard.run(
      "step",
      "step",
      () => this.#step(batch),
      () => true,
    );
  }

  async #step(batch: Batch): Promise<ShardStep> {
    const part = await this.#shard.step(batch);
    assertPart(part);
    const { shape, output } = part;
    const dtype = parameterDTypeOf(output) ?? "float64";
    await assertSameOnRanks(this.#comm, {
      action: "TensorParallel.step",
      kind: "partial",
      lines: new Map([["output", `${dtype} [${shape.join(", ")}]`]]),
      hint: "every shard computes a part of the sum of the same shape",
    });
    const own = [
      part.samples === 0 ? 0 : part.loss * part.samples,
      part.gradientNorm,
      part.samples,
    ];
    const all = await gatherNumbers(this.#comm, own);
    const column = (at: number): number[] => all.map((each) => each[at] as number);
    const total = (at: number): number => column(at).reduce((sum, each) => sum + each, 0);
    const [loss, samples] = [total(0), total(2)];
    if (samples === 0)
      throw invalid("TensorParallel.step", "samples", "0 on all ranks", "at least one");
    const sum = await sumOverRanks(this.#comm, output);
    const gradientNorm = combineNorms(column(1));
    return { output: sum, shape: [...shape], loss: loss / samples, gradientNorm, samples };
  }
}

function assertPart(part: ShardStep): void {
  if (part === undefined || part === null)
    throw invalid("TensorParallel.step", "the shard's step", textOf(part), "a ShardStep");
  const { output, shape, loss, gradientNorm, samples } = part;
  if (!isParameterArray(output)) {
    throw invalid("TensorParallel.step", "output", typeof output, "a Float32Array or Float64Array");
  }
  if (!Array.isArray(shape) || output.length !== elementsOf(shape)) {
    const of = Array.isArray(shape) ? `[${shape.join(", ")}]` : "its shape, an array,";
    throw invalid(
      "TensorParallel.step",
      "output",
      `${output.length} elements`,
      `as many as ${of} has`,
    );
  }
  if (!isCount(samples)) {
    throw invalid("TensorParallel.step", "samples", textOf(samples), "an integer of at least 0");
  }
  if (!Number.isFinite(loss) && samples > 0)
    throw invalid("TensorParallel.step", "loss", textOf(loss), "a finite number");
  if (!Number.isFinite(gradientNorm) || gradientNorm < 0) {
    throw invalid(
      "TensorParallel.step",
      "gradientNorm",
      textOf(gradientNorm),
      "a finite number of at least 0",
    );
  }
}
