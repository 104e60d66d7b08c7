/** A stage of a pipeline: its interface, and one step of it with its unfinished passes and the sums of its gradients. */

import type { Communicator } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import {
  type MicroBatch,
  noVisits,
  type Visit,
  type VisitLayer,
} from "../data-parallel/backward.ts";
import type { TakeGradient } from "../layers/layer.ts";
import { isParameterArray, type ParameterArray } from "../parameter-set.ts";
import type { ScheduleAction, StageExchange } from "./schedule.ts";
import type { StageTransfers } from "./stage-transfers.ts";

/** One forward pass of a stage. Several are under way at once; each keeps the data of its own backward. */
export interface StagePass {
  /** The input of the next stage, in the pipeline's dtype; not read on the last stage. Sent before anything else is computed. */
  readonly output?: ParameterArray | undefined;
  /** The sum of the micro-batch's losses, and the number and weight of its samples; only on the last stage. */
  readonly totals?: MicroBatch | undefined;
  /**
   * Gets the gradient by the output; `undefined` on the last stage, which begins with its loss. Reports the gradient by each of
   * the stage's parameters, at most once. Returns the gradient by the input, of its length; not read on the first stage. Gradients
   * are those of the sum of the losses.
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
   * `visit` is called with every layer of the stage before its use, first to last, and in backward last to first. With values
   * in shards (`ShardedParallel`), a layer's can be read from then until the next visit.
   */
  forward(
    batch: Batch,
    input: ParameterArray | undefined,
    visit: VisitLayer,
  ): StagePass | PromiseLike<StagePass>;
}

// One step of one stage: its unfinished passes, and its gradients so far.

/** The time of a stage on the virtual clock. */
export interface VirtualWork {
  readonly forwardNs: number;
  readonly backwardNs: number;
}

/** The parts of a step of a stage. */
export interface StageStepParts<Batch> {
  readonly comm: Communicator;
  readonly stage: Stage<Batch>;
  readonly work: VirtualWork | undefined;
  readonly batches: readonly Batch[];
  readonly take: TakeGradient;
  /** Left out where the stage has all its values: then the gradients of all micro-batches are reported as one sum. */
  readonly visit: Visit | undefined;
}

/** Runs the actions of a schedule. */
export class StageStep<Batch> {
  readonly totals = { loss: 0, samples: 0, weight: 0 };
  held = 0;
  readonly #parts: StageStepParts<Batch>;
  readonly #sums: GradientSums;
  readonly #inputs = new Map<number, ParameterArray>();
  readonly #inputLengths = new Map<number, number>();
  readonly #passes = new Map<number, StagePass>();
  readonly #above = new Map<number, ParameterArray>();
  readonly #below = new Map<number, ParameterArray>();

  constructor(parts: StageStepParts<Batch>) {
    this.#parts = parts;
    this.#sums = new GradientSums(parts.take);
  }

  /** Computes, or exchanges with the neighbours. */
  async run(action: ScheduleAction, transfers: StageTransfers): Promise<void> {
    if (action.kind === "forward") await this.#forward(action.microBatch);
    else if (action.kind === "backward") await this.#backward(action.microBatch);
    else await this.#exchange(action, transfers);
  }

  finish(): void {
    this.#sums.finish();
  }

  async #forward(at: number): Promise<void> {
    const { comm, stage, work, batches, visit } = this.#parts;
    if (at >= batches.length) return visit?.skip();
    const input = this.#inputs.get(at);
    this.#inputs.delete(at);
    if (work !== undefined) comm.work(work.forwardNs, `forward ${at}`);
    const pass = await stage.forward(batches[at] as Batch, input, visit ?? noVisits);
    if (typeof pass?.backward !== "function") {
      throw invalid(
        "PipelineParallel",
        `forward of micro-batch ${at}`,
        "no pass with a backward",
        "a StagePass",
      );
    }
    if (comm.rank === comm.size - 1) this.#addTotals(pass.totals, at);
    else assertArray("output", pass.output, at);
    this.#passes.set(at, pass);
    this.held = Math.max(this.held, this.#passes.size);
  }

  async #backward(at: number): Promise<void> {
    const { comm, work, batches, visit } = this.#parts;
    if (at >= batches.length) return visit?.skip();
    const pass = this.#passes.get(at) as StagePass;
    const above = this.#above.get(at);
    this.#above.delete(at);
    if (work !== undefined) comm.work(work.backwardNs, `backward ${at}`);
    const isLast = at === batches.length - 1;
    const take = visit === undefined ? this.#sums.begin(isLast) : this.#parts.take;
    let open = true;
    const below = await pass.backward(above, (name, gradient) => {
      if (!open)
        throw invalid(
          "PipelineParallel",
          `gradient of "${name}"`,
          "it after its micro-batch",
          "it before",
        );
      take(name, gradient);
    });
    open = false;
    visit?.endPass();
    this.#passes.delete(at);
    if (comm.rank === 0) return;
    const given = assertArray("gradient by the input", below, at);
    const needed = this.#inputLengths.get(at) as number;
    if (given.length !== needed) {
      throw invalid(
        "PipelineParallel",
        `gradient by the input of micro-batch ${at}`,
        `${given.length} elements`,
        `${needed}, as the input has`,
      );
    }
    this.#below.set(at, given);
  }

  async #exchange(
    { input, output, above, below }: StageExchange,
    transfers: StageTransfers,
  ): Promise<void> {
    const outputOf = (at: number): ParameterArray => this.#passes.get(at)?.output as ParameterArray;
    const received = await transfers.exchange({
      toNext: output === undefined ? undefined : outputOf(output),
      toPrevious: below === undefined ? undefined : this.#below.get(below),
      fromNext: above === undefined ? undefined : outputOf(above).length,
      fromPrevious: input === undefined ? undefined : this.#inputLength(input),
    });
    if (below !== undefined) this.#below.delete(below);
    if (received.fromNext !== undefined) this.#above.set(above as number, received.fromNext);
    if (received.fromPrevious !== undefined) {
      this.#inputs.set(input as number, received.fromPrevious);
    }
  }

  #inputLength(at: number): number {
    const length = this.#parts.stage.inputLength(this.#parts.batches[at] as Batch);
    if (!isCount(length)) {
      throw invalid(
        "PipelineParallel",
        `inputLength of micro-batch ${at}`,
        textOf(length),
        "an integer of at least 0",
      );
    }
    this.#inputLengths.set(at, length);
    return length;
  }

  #addTotals(totals: MicroBatch | undefined, at: number): void {
    const { loss, samples, weight = samples } = totals ?? {};
    if (typeof loss !== "number") {
      throw invalid(
        "PipelineParallel",
        `totals of micro-batch ${at}`,
        typeof loss,
        "the last stage's loss, a number",
      );
    }
    if (!isCount(samples)) {
      throw invalid(
        "PipelineParallel",
        `totals.samples of micro-batch ${at}`,
        textOf(samples),
        "an integer of at least 0",
      );
    }
    if (!Number.isFinite(weight) || (weight as number) < 0) {
      throw invalid(
        "PipelineParallel",
        `totals.weight of micro-batch ${at}`,
        textOf(weight),
        "a number of at least 0",
      );
    }
    this.totals.loss += loss;
    this.totals.samples += samples;
    this.totals.weight += weight as number;
  }
}

function assertArray(what: string, array: ParameterArray | undefined, at: number): ParameterArray {
  if (isParameterArray(array)) return array;
  const needed = "a Float32Array or Float64Array";
  throw invalid("PipelineParallel", `${what} of micro-batch ${at}`, typeof array, needed);
}

// The gradients of one stage, added up over micro-batches in their order, and reported once each.

/** Adds up the gradients of backward, and reports the sums as soon as the last micro-batch has added its part. */
export class GradientSums {
  readonly #take: TakeGradient;
  readonly #sums = new Map<string, ParameterArray>();
  /** Names that the present micro-batch has reported. */
  readonly #received = new Set<string>();
  #last = false;

  constructor(take: TakeGradient) {
    this.#take = take;
  }

  /** Opens a micro-batch, and returns the receiver of its gradients. */
  begin(last: boolean): TakeGradient {
    this.#last = last;
    this.#received.clear();
    return (name, gradient) => this.#add(name, gradient);
  }

  /** Reports the sums without a part of the last micro-batch. */
  finish(): void {
    for (const [name, sum] of this.#sums) this.#take(name, sum);
    this.#sums.clear();
  }

  #add(name: string, gradient: ParameterArray): void {
    if (this.#received.has(name))
      throw invalid("PipelineParallel", name, "a second gradient in the same micro-batch", "one");
    if (!isParameterArray(gradient)) {
      const found = `a gradient that is ${textOf(gradient)}`;
      throw invalid("PipelineParallel", name, found, "a Float32Array or Float64Array");
    }
    this.#received.add(name);
    const sum = this.#sums.get(name);
    if (sum === undefined) {
      if (this.#last) this.#take(name, gradient);
      else this.#sums.set(name, gradient.slice());
      return;
    }
    if (sum.length !== gradient.length) {
      const needed = `${sum.length}, as in the micro-batches before`;
      throw invalid("PipelineParallel", name, `a gradient of ${gradient.length} elements`, needed);
    }
    for (let at = 0; at < sum.length; at++) {
      sum[at] = (sum[at] as number) + (gradient[at] as number);
    }
    if (!this.#last) return;
    this.#sums.delete(name);
    this.#take(name, sum);
  }
}
