/** The computation of a kernel: one dtype and operator. Combinations with the same instructions share an operation. */
import type { Fold } from "../../../../../algorithms/arithmetic/index.ts";
import { type DType, dtypeInfo } from "../../../../../api/index.ts";

/** Positions at which products are rounded together with the sum: all, none, or depending on the position in the chunk. */
export type Fusing = "all" | "none" | "byPosition";

/** An operation of kernels. */
export interface Operation {
  readonly dtype: DType;
  /** `average`: a sum that is divided at the end; `scaled`: a sum of products with a scalar; `wide`: a sum in float32. */
  readonly kind: "sum" | "prod" | "min" | "max" | "average" | "scaled" | "wide";
  readonly fused: Fusing;
}

/** A fold of one operand copies it; elements of this dtype keep all bits. */
export const copying: Operation = { dtype: "uint32", kind: "sum", fused: "none" };

/** The operation of a fold; `separate` is the second one, where rounding depends on the position. */
export function operationOf(fold: Fold, separate: Fold | undefined): Operation {
  const { dtype, op, terms, scales } = fold;
  if (terms.accumulator === "float32") return { dtype, kind: "wide", fused: "none" };
  if (scales) {
    const differs = separate !== undefined && separate.terms.fused !== terms.fused;
    return { dtype, kind: "scaled", fused: differs ? "byPosition" : terms.fused ? "all" : "none" };
  }
  if (op === "avg") {
    const divided = dtypeInfo[dtype].kind !== "float" && terms.divisor > 1;
    return { dtype, kind: divided ? "average" : "sum", fused: "none" };
  }
  return { dtype, kind: typeof op === "object" ? "scaled" : op, fused: "none" };
}

/** An operation as a key. */
export function operationKey({ dtype, kind, fused }: Operation): string {
  return `${dtype} ${kind} ${fused}`;
}
