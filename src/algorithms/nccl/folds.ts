/** The arithmetic of a plan: which fold an executor runs, and which second one where rounding goes by position. */
import { bytesOf } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { Fold } from "../arithmetic/fold.ts";
import { foldFor } from "../arithmetic/fold-for.ts";
import type { NcclPlan } from "./plan-shape.ts";
import { symmetricFold } from "./symmetric-fold.ts";

/** The folds of a plan. */
export interface PlanFolds {
  readonly fold: Fold;
  /**
   * Given for plans that round by position: every block is folded both ways, and `takeSeparate` joins them before
   * `finish`.
   */
  readonly separate: Fold | undefined;
  /** What holds a running value: the element type, or float32, which is rounded to the element type once at the end. */
  readonly accumulator: "element" | "float32";
}

/** How contributions are folded under a plan; `op` is a rank's own where the scalars of ranks differ. */
export function planFolds(plan: NcclPlan, op: ReduceOp): PlanFolds {
  const { dtype, ranks, rounding, accumulator } = plan;
  // NCCL has no 8-bit float kernel for one rank, so its average there is the copy that it means.
  if (ranks === 1 && op === "avg" && bytesOf(dtype) === 1) return planFolds(plan, "sum");
  if (accumulator === "float32")
    return { fold: symmetricFold(dtype), separate: undefined, accumulator };
  const separate = foldFor(dtype, op, ranks, "separate");
  if (rounding === "separate") return { fold: separate, separate: undefined, accumulator };
  const fold = foldFor(dtype, op, ranks, "fused");
  return { fold, separate: rounding === "byPosition" ? separate : undefined, accumulator };
}
