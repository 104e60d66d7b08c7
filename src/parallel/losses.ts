/** Losses: cross entropy and mean squared error, with their gradients by the prediction. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { assertOneOf, isCount } from "./argument-checks.ts";
import { isParameterArray, type ParameterArray } from "./parameter-set.ts";

/** A loss over some samples, and their weight. */
export interface Loss {
  /** The mean, or the sum on request. */
  readonly value: number;
  /**
   * The divisor of the mean: elements, rows or their weights. The means of several batches, and their gradients, combine to
   * those of all samples with these weights.
   */
  readonly weight: number;
}

/** The kind of value and gradient: mean or sum; `DataParallel` takes sums and divides once. */
export type Reduction = "mean" | "sum";

const reductions: readonly Reduction[] = ["mean", "sum"];

/** Refuses a value without a length. */
function assertList(loss: string, field: string, list: ArrayLike<number>): void {
  if (typeof list === "object" && typeof list?.length === "number") return;
  throw invalid(loss, field, textOf(list), "an array of numbers");
}

/** Refuses a gradient of another length, or in an array of integers, which would round it. */
function assertGradient(loss: string, gradient: ParameterArray, needed: number): void {
  if (!isParameterArray(gradient)) {
    throw invalid(loss, "gradient", textOf(gradient), "a Float32Array or Float64Array");
  }
  assertLength(loss, "gradient", gradient.length, needed);
}

/** Refuses an array of the wrong length. */
function assertLength(loss: string, field: string, found: number, needed: number): void {
  if (found === needed) return;
  throw invalid(loss, field, `${found} elements`, `${needed}`);
}

// Cross entropy of logits with target classes, weighted by class or not, as `torch.nn.functional.cross_entropy`.

/** Arguments of `crossEntropy`. */
export interface CrossEntropyArgs {
  /** One row of `classes` numbers for each target. */
  readonly logits: ParameterArray;
  /** The target class of every row, from 0. */
  readonly targets: ArrayLike<number>;
  readonly classes: number;
  /** Weight of each class, at least 0; all 1 when left out. */
  readonly weights?: ArrayLike<number> | undefined;
  /** Overwritten with the loss's gradient by the logits; as long as the logits, and may be the same array. */
  readonly gradient?: ParameterArray | undefined;
  /** `mean` when left out; `sum` does not divide by Σ w(t). */
  readonly reduction?: Reduction | undefined;
}

const crossEntropyKinds: OptionKinds<CrossEntropyArgs> = {
  ...{ logits: true, targets: true, classes: true },
  ...{ weights: true, gradient: true, reduction: true },
};

/**
 * Σ w(t) · (log Σ exp logits − logit of t) / Σ w(t) over the rows, with a row's target t: the mean is divided by the sum of the
 * targets' weights, as in PyTorch. `weight` is that sum; without weights, the number of rows. Gradient: w(t) · (softmax − 1 at
 * t) / Σ w(t). Computed in float64, each row from its largest logit, so no logit overflows.
 *
 * @throws InvalidArgumentError, before any write, for lengths that do not fit, an unknown class or reduction, or a weight that
 * is negative or not a number. Also for a mean with weights that are zero for all targets: it would be 0 / 0. A sum of these is
 * 0, as a part of a batch.
 * @example
 * const { value, weight } = crossEntropy({ logits, targets, classes: 10, gradient, reduction: "sum" });
 */
export function crossEntropy(args: CrossEntropyArgs): Loss {
  assertOptions("crossEntropy", args, crossEntropyKinds);
  const { logits, targets, classes, weights, gradient, reduction = "mean" } = args;
  assertOneOf("crossEntropy", "reduction", reduction, reductions);
  const weight = totalWeight(args);
  const divisor = reduction === "mean" ? weight : 1;
  let sum = 0;
  for (let row = 0; row < targets.length; row++) {
    const begin = row * classes;
    const target = targets[row] as number;
    const own = weights === undefined ? 1 : (weights[target] as number);
    let largest = Number.NEGATIVE_INFINITY;
    for (let i = begin; i < begin + classes; i++) largest = Math.max(largest, logits[i] as number);
    let total = 0;
    for (let i = begin; i < begin + classes; i++)
      total += Math.exp((logits[i] as number) - largest);
    const loss = Math.log(total) - ((logits[begin + target] as number) - largest);
    sum += own * loss;
    if (gradient === undefined) continue;
    for (let i = begin; i < begin + classes; i++) {
      const probability = Math.exp((logits[i] as number) - largest) / total;
      gradient[i] = (own * (probability - (i === begin + target ? 1 : 0))) / divisor;
    }
  }
  return { value: sum / divisor, weight };
}

/** Checks all arguments; returns the sum of the targets' weights. */
function totalWeight(args: CrossEntropyArgs): number {
  const { logits, targets, classes, weights, gradient, reduction } = args;
  if (!isCount(classes, 1)) {
    throw invalid("crossEntropy", "classes", textOf(classes), "an integer of at least 1");
  }
  assertList("crossEntropy", "logits", logits);
  assertList("crossEntropy", "targets", targets);
  if (targets.length === 0) throw invalid("crossEntropy", "targets", "no rows", "at least one");
  assertLength("crossEntropy", "logits", logits.length, targets.length * classes);
  if (gradient !== undefined) assertGradient("crossEntropy", gradient, logits.length);
  if (weights !== undefined) {
    assertList("crossEntropy", "weights", weights);
    assertLength("crossEntropy", "weights", weights.length, classes);
    for (let at = 0; at < classes; at++) {
      const each: unknown = weights[at];
      if (typeof each === "number" && each >= 0 && each < Number.POSITIVE_INFINITY) continue;
      throw invalid("crossEntropy", `weights[${at}]`, textOf(each), "a number of at least 0");
    }
  }
  let weight = 0;
  for (let row = 0; row < targets.length; row++) {
    const target = targets[row] as number;
    if (!Number.isInteger(target) || target < 0 || target >= classes) {
      const needed = `a class from 0 to ${classes - 1}`;
      throw invalid("crossEntropy", `targets[${row}]`, textOf(target), needed);
    }
    weight += weights === undefined ? 1 : (weights[target] as number);
  }
  if (weight > 0 || reduction === "sum") return weight;
  throw invalid("crossEntropy", "weights", "0 for every target", "a weight above 0 for one");
}

// Mean squared error, as `torch.nn.functional.mse_loss` with its mean.

/** Arguments of `mse`. */
export interface MseArgs {
  readonly prediction: ParameterArray;
  /** As long as the prediction. */
  readonly target: ArrayLike<number>;
  /** Overwritten with the loss's gradient by the prediction; as long as the prediction, and may be the same array. */
  readonly gradient?: ParameterArray | undefined;
  /** `mean` when left out; `sum` does not divide by n. */
  readonly reduction?: Reduction | undefined;
}

const mseKinds: OptionKinds<MseArgs> = {
  ...{ prediction: true, target: true, gradient: true, reduction: true },
};

/**
 * Σ (prediction − target)² / n, with its gradient 2 (prediction − target) / n. `weight` is n, the number of elements.
 * Summed in float64 in the order of the elements.
 *
 * @throws InvalidArgumentError, before any write, for lengths that differ, no elements, or an unknown reduction.
 * @example
 * const { value } = mse({ prediction, target, gradient });
 */
export function mse(args: MseArgs): Loss {
  assertOptions("mse", args, mseKinds);
  const { prediction, target, gradient, reduction = "mean" } = args;
  assertList("mse", "prediction", prediction);
  assertList("mse", "target", target);
  assertOneOf("mse", "reduction", reduction, reductions);
  const count = prediction.length;
  assertLength("mse", "prediction", count, Math.max(1, count));
  assertLength("mse", "target", target.length, count);
  if (gradient !== undefined) assertGradient("mse", gradient, count);
  const divisor = reduction === "mean" ? count : 1;
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const difference = (prediction[i] as number) - (target[i] as number);
    sum += difference * difference;
    if (gradient !== undefined) gradient[i] = (2 * difference) / divisor;
  }
  return { value: sum / divisor, weight: count };
}
