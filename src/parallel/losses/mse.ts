/** Mean squared error, as `torch.nn.functional.mse_loss` with its mean. */
import { assertOptions, type OptionKinds } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import { assertLength, assertList, assertReduction, type Loss, type Reduction } from "./loss.ts";

/** Arguments of `mse`. */
export interface MseArgs {
  readonly prediction: ParameterArray;
  /** As long as the prediction. */
  readonly target: ArrayLike<number>;
  /** Takes the loss's gradient by the prediction; as long as the prediction, which it may be. Overwritten. */
  readonly gradient?: ParameterArray | undefined;
  /** `mean` when left out; `sum` does not divide by n. */
  readonly reduction?: Reduction | undefined;
}

const kinds: OptionKinds<MseArgs> = {
  ...{ prediction: true, target: true, gradient: true, reduction: true },
};

/**
 * Σ (prediction − target)² / n, with its gradient 2 (prediction − target) / n. `weight` is n, the number of elements.
 * Summed in float64 in the order of the elements.
 *
 * @throws InvalidArgumentError for lengths that differ, no elements, or a reduction that is none; nothing is written.
 * @example
 * const { value } = mse({ prediction, target, gradient });
 */
export function mse(args: MseArgs): Loss {
  assertOptions("mse", args, kinds);
  const { prediction, target, gradient, reduction = "mean" } = args;
  assertList("mse", "prediction", prediction);
  assertList("mse", "target", target);
  assertReduction("mse", reduction);
  const count = prediction.length;
  assertLength("mse", "prediction", count, Math.max(1, count));
  assertLength("mse", "target", target.length, count);
  if (gradient !== undefined) assertLength("mse", "gradient", gradient.length, count);
  const divisor = reduction === "mean" ? count : 1;
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const difference = (prediction[i] as number) - (target[i] as number);
    sum += difference * difference;
    if (gradient !== undefined) gradient[i] = (2 * difference) / divisor;
  }
  return { value: sum / divisor, weight: count };
}
