/** The gradients of one stage, added up over micro-batches in their order, and reported once each. */

import { invalid } from "../../api/option-kinds.ts";
import type { TakeGradient } from "../layers/layer.ts";
import type { ParameterArray } from "../parameter-set.ts";

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

  /** Opens a micro-batch, and gives the receiver of its gradients. */
  begin(last: boolean): TakeGradient {
    this.#last = last;
    this.#received.clear();
    return (name, gradient) => this.#add(name, gradient);
  }

  /** Reports the sums that the last micro-batch added nothing to. */
  finish(): void {
    for (const [name, sum] of this.#sums) this.#take(name, sum);
    this.#sums.clear();
  }

  #add(name: string, gradient: ParameterArray): void {
    if (this.#received.has(name))
      throw invalid("PipelineParallel", name, "a second gradient in the same micro-batch", "one");
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
