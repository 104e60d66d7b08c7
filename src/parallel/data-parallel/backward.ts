/**
 * One step's gradients on one rank: collected as backward produces them, and issued bucket by bucket.
 *
 * Buckets are issued in one order on all ranks, in whatever order they become complete: bucket k waits for those before it.
 * None is issued before the last micro-batch, because until then every gradient may still change.
 */
import { InvalidArgumentError } from "../../api/index.ts";
import { type Complete, invalid, textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import {
  isParameterArray,
  type Parameter,
  type ParameterArray,
  type ParameterSet,
} from "../parameter-set.ts";
import type { ActiveBucket } from "./wire.ts";

/**
 * Backward passes it the gradient of one parameter as soon as that is complete: of the sum of the losses over the micro-batch.
 * It is added, times `scale` (1 when left out), to the sum of earlier micro-batches, and may be reused afterwards. A model with
 * a mean loss passes its number of samples as the scale.
 */
export type Ready = (name: string, gradient: ParameterArray, scale?: number) => void;

/** Backward's report of a micro-batch. */
export interface MicroBatch {
  /** Sum of the losses of its samples, with their weights if any. */
  readonly loss: number;
  /** Number of its samples. */
  readonly samples: number;
  /** Sum of the weights of its samples, where the loss weights them; its samples when left out. */
  readonly weight?: number | undefined;
}

/** The gradients of one rank during one step. */
export class BackwardPass {
  /** The parameters that got a gradient in any micro-batch. */
  readonly used = new Set<Parameter>();
  readonly #parameters: ParameterSet;
  readonly #buckets: readonly ActiveBucket[];
  readonly #bucketOf: ReadonlyMap<Parameter, number>;
  /** Parameters that the last micro-batch has not reported yet, by bucket. */
  readonly #awaited: number[];
  /** The parameters that the present micro-batch has reported. */
  readonly #ready = new Set<Parameter>();
  #issued = 0;
  #last = false;

  constructor(
    parameters: ParameterSet,
    buckets: readonly ActiveBucket[],
    bucketOf: Map<Parameter, number>,
  ) {
    this.#parameters = parameters;
    this.#buckets = buckets;
    this.#bucketOf = bucketOf;
    this.#awaited = buckets.map(({ bucket }) => bucket.parameters.length);
    parameters.zeroGradients();
  }

  /** Opens a micro-batch; gradients of the last one complete the buckets. */
  begin(last: boolean): void {
    this.#last = last;
    this.#ready.clear();
  }

  /** Adds `scale` times a gradient to its parameter's. */
  ready(name: string, gradient: ParameterArray, scale: number): void {
    const parameter = this.#parameters.get(name);
    this.#assertFits(parameter, gradient, scale);
    this.#ready.add(parameter);
    this.used.add(parameter);
    const sum = parameter.gradient;
    for (let at = 0; at < sum.length; at++) {
      sum[at] = (sum[at] as number) + scale * (gradient[at] as number);
    }
    if (!this.#last) return;
    const index = this.#bucketOf.get(parameter);
    // A parameter without elements is in no bucket.
    if (index === undefined) return;
    this.#awaited[index] = (this.#awaited[index] as number) - 1;
    while (this.#issued < this.#buckets.length && this.#awaited[this.#issued] === 0) this.#issue();
  }

  /** Issues the remaining buckets: parameters without a gradient in the last micro-batch keep their sum. */
  finish(): void {
    while (this.#issued < this.#buckets.length) this.#issue();
  }

  #issue(): void {
    const { bucket, staging, exchange } = this.#buckets[this.#issued++] as ActiveBucket;
    for (const { parameter, begin } of bucket.parameters) staging.set(parameter.gradient, begin);
    const op = exchange.post(staging);
    // After a call that could not be made no other may follow: it would match the others' call of this bucket.
    if (op.status === "failed") throw op.error;
  }

  #assertFits(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    assertGradient(parameter, gradient, scale);
    if (gradient.buffer === parameter.gradient.buffer) {
      const needed = "an array of its own, which is added to it";
      throw invalid("ready", parameter.name, "a gradient in the set's own memory", needed);
    }
    if (this.#ready.has(parameter)) {
      throw invalid(
        "ready",
        parameter.name,
        "a second gradient in the same micro-batch",
        "one",
        "add up the parts of a parameter that is used twice, then call ready once",
      );
    }
  }
}

/** Refuses a gradient that does not fit its parameter. */
export function assertGradient(
  { name, length, shape }: Parameter,
  gradient: ParameterArray,
  scale: number,
): void {
  if (!isParameterArray(gradient)) {
    throw invalid(
      "ready",
      name,
      `a gradient that is ${textOf(gradient)}`,
      "a Float32Array or Float64Array",
    );
  }
  if (gradient.length !== length) {
    throw invalid(
      "ready",
      name,
      `a gradient of ${gradient.length} elements`,
      `exactly ${length}, the product of [${shape.join(", ")}]`,
      "a gradient has the shape of its parameter; it is never cut or padded",
    );
  }
  if (!Number.isFinite(scale))
    throw invalid("ready", name, `a scale of ${textOf(scale)}`, "a finite one");
}

/** Refuses invalid arguments of a trainer's `step`. */
export function assertStepArguments(
  trainer: string,
  microBatches: unknown,
  backward: unknown,
): void {
  const fault = (field: string, found: unknown, needed: string): InvalidArgumentError =>
    invalid(`${trainer}.step`, field, textOf(found), needed);
  if (!Array.isArray(microBatches)) {
    throw fault("microBatches", microBatches, "an array of them, empty where there is none");
  }
  if (typeof backward !== "function") throw fault("backward", backward, "a function");
}

/** Runs backward over all micro-batches and adds up their gradients. */
export async function runBackward<B>(
  pass: BackwardPass,
  microBatches: readonly B[],
  backward: (batch: B, ready: Ready) => MicroBatch | PromiseLike<MicroBatch>,
): Promise<Complete<MicroBatch>> {
  const sums = { loss: 0, samples: 0, weight: 0 };
  for (const [at, batch] of microBatches.entries()) {
    pass.begin(at === microBatches.length - 1);
    addReport(sums, await runMicroBatch(pass, (ready) => backward(batch, ready)), at);
  }
  return sums;
}

/** Runs backward on one micro-batch; gradients reported after its end or its failure are refused. */
export async function runMicroBatch(
  pass: { ready(name: string, gradient: ParameterArray, scale: number): void },
  backward: (ready: Ready) => MicroBatch | PromiseLike<MicroBatch>,
): Promise<MicroBatch> {
  let open = true;
  try {
    return await backward((name, gradient, scale = 1) => {
      if (!open) throw lateGradient(name);
      pass.ready(name, gradient, scale);
    });
  } finally {
    open = false;
  }
}

/** Adds the gradients of micro-batch number `at`. */
export function addReport(
  sums: { loss: number; samples: number; weight: number },
  report: MicroBatch,
  at: number,
): void {
  assertReport(report, at);
  const { loss, samples, weight = samples } = report;
  sums.loss += loss;
  sums.samples += samples;
  sums.weight += weight;
}

function lateGradient(name: string): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: `ready: gradient of "${name}": its micro-batch is over`,
      hint: "call ready before backward returns, or before the promise it returns resolves",
    },
    { field: name },
  );
}

function assertReport(report: MicroBatch, at: number): void {
  const { loss, samples, weight = samples } = report ?? {};
  const fault = (field: string, found: unknown, needed: string): InvalidArgumentError =>
    invalid(`backward of micro-batch ${at}`, field, textOf(found), needed);
  if (typeof loss !== "number") throw fault("loss", loss, "a number, the sum over samples");
  if (!isCount(samples)) {
    throw fault("samples", samples, "an integer of at least 0");
  }
  if (!Number.isFinite(weight) || weight < 0) {
    throw fault("weight", weight, "a finite number of at least 0");
  }
}

// Announces to a trainer with sharded values the layer that backward computes next, and the direction.

/** Takes the next layer; resolves when that layer's values can be read. */
export type VisitLayer = (layer: string) => Promise<void>;

/** One pass through all layers: first to last, or last to first. */
export type Direction = "forward" | "backward";

/**
 * Takes the layer that backward computes next; resolves when that layer's values can be read. Without `passes`, a
 * micro-batch goes through all layers once forward and once back.
 */
export interface Visit extends VisitLayer {
  /**
   * Announces, before the first visit, that several passes follow one another, as in a pipeline; gradients are then reported in
   * every pass back. All ranks make as many passes as the rank that needs most.
   *
   * - **Collective** over the trainer's ranks. **Cost**: an all-gather of 4 bytes and a comparison.
   *
   * @param count - Passes forward that this rank needs; it needs as many back.
   * @param passesOf - Their order for any number of them, the same on all ranks.
   * @returns The number of passes on all ranks; those that this one does not need are made by `skip`.
   * @throws InvalidArgumentError for an invalid order, or when a rank has no micro-batch for its passes.
   * @throws CollectiveMismatchError on all ranks for orders that differ.
   */
  passes(count: number, passesOf: (count: number) => readonly Direction[]): Promise<number>;
  /** Makes the next pass without a gradient: only visits its layers. */
  skip(): Promise<void>;
  /**
   * Ends a pass back: its sums over the ranks are made now, before any other call of this rank. Without it those of layers that
   * reported no gradient would be made with the next pass, behind other calls on this rank alone.
   */
  endPass(): void;
}

/** The visits of trainers that hold all values. */
export const noVisits = (): Promise<void> => Promise.resolve();
