/** Cross entropy of logits with target classes, weighted by class or not, as `torch.nn.functional.cross_entropy`. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import { assertLength, assertList, assertReduction, type Loss, type Reduction } from "./loss.ts";

/** Arguments of `crossEntropy`. */
export interface CrossEntropyArgs {
  /** One row of `classes` numbers for each target. */
  readonly logits: ParameterArray;
  /** The right class of every row, from 0. */
  readonly targets: ArrayLike<number>;
  readonly classes: number;
  /** Weight of each class, at least 0; all 1 when left out. */
  readonly weights?: ArrayLike<number> | undefined;
  /** Takes the loss's gradient by the logits; as long as the logits, which it may be. Overwritten. */
  readonly gradient?: ParameterArray | undefined;
  /** `mean` when left out; `sum` does not divide by Σ w(t). */
  readonly reduction?: Reduction | undefined;
}

const kinds: OptionKinds<CrossEntropyArgs> = {
  ...{ logits: true, targets: true, classes: true },
  ...{ weights: true, gradient: true, reduction: true },
};

/**
 * Σ w(t) · (log Σ exp logits − logit of t) / Σ w(t) over the rows, t being a row's target: the mean is divided by the sum of
 * the targets' weights, as PyTorch does. `weight` is that sum; without weights, the number of rows. Gradient:
 * w(t) · (softmax − 1 at t) / Σ w(t). Computed in float64, each row from its largest logit, so no logit overflows.
 *
 * @throws InvalidArgumentError for lengths that do not fit, a target that is no class, a weight that is negative or not a
 * number, weights that are zero for all targets (the mean would be 0 / 0), or a reduction that is none; nothing is written.
 * @example
 * const { value, weight } = crossEntropy({ logits, targets, classes: 10, gradient, reduction: "sum" });
 */
export function crossEntropy(args: CrossEntropyArgs): Loss {
  assertOptions("crossEntropy", args, kinds);
  const { logits, targets, classes, weights, gradient, reduction = "mean" } = args;
  assertReduction("crossEntropy", reduction);
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

/** Checks all arguments; the sum of the targets' weights. */
function totalWeight({ logits, targets, classes, weights, gradient }: CrossEntropyArgs): number {
  if (!Number.isSafeInteger(classes) || classes < 1) {
    throw invalid("crossEntropy", "classes", textOf(classes), "an integer of at least 1");
  }
  assertList("crossEntropy", "logits", logits);
  assertList("crossEntropy", "targets", targets);
  if (targets.length === 0) throw invalid("crossEntropy", "targets", "no rows", "at least one");
  assertLength("crossEntropy", "logits", logits.length, targets.length * classes);
  if (gradient !== undefined) {
    assertLength("crossEntropy", "gradient", gradient.length, logits.length);
  }
  if (weights !== undefined) {
    assertLength("crossEntropy", "weights", weights.length, classes);
    for (let at = 0; at < classes; at++) {
      const each = weights[at] as number;
      if (each >= 0 && each < Number.POSITIVE_INFINITY) continue;
      throw invalid("crossEntropy", `weights[${at}]`, String(each), "a number of at least 0");
    }
  }
  let weight = 0;
  for (let row = 0; row < targets.length; row++) {
    const target = targets[row] as number;
    if (!Number.isInteger(target) || target < 0 || target >= classes) {
      const needed = `a class from 0 to ${classes - 1}`;
      throw invalid("crossEntropy", `targets[${row}]`, String(target), needed);
    }
    weight += weights === undefined ? 1 : (weights[target] as number);
  }
  if (weight > 0) return weight;
  throw invalid("crossEntropy", "weights", "0 for every target", "a weight above 0 for one");
}
