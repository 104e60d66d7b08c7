/**
 * The fold of a dtype and an operator, created once for each combination that has its own bits.
 *
 * The number of ranks decides the bits of averages only, and the rounding those of float sums with
 * a scalar only. Calls that differ otherwise share a fold.
 */
import { type DType, dtypeInfo, dtypes, isDType } from "../../api/dtype.ts";
import type { InvalidArgumentError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { type ReduceOp, reduceOpChoices, reduceOpFault } from "../../api/reduce-op.ts";
import type { FloatDType, Fold, ScalarRounding } from "./fold.ts";
import { operators } from "./operators.ts";
import { averageScalar, roundScalar } from "./scalar.ts";

/** Folds of one dtype and operator (or scalar), by ranks and rounding. */
type Variants = Map<number, Fold>;

const folds = new Map<DType, Map<string | number | bigint, Variants>>();

/** Scalars cached for each dtype: the bound limits the memory of programs with many scalars. */
const maxOperators = 64;

/** The most ranks of a fold: the division of a 64-bit average is exact up to there. */
const maxRanks = 2 ** 20;

/**
 * The fold of contributions of `dtype` by `op` over `ranks` ranks. A repeated call makes no other
 * fold.
 *
 * @throws InvalidArgumentError with the name of a wrong argument, such as a scalar outside `dtype`.
 */
export function foldFor(dtype: DType, op: ReduceOp, ranks: number, rounding: ScalarRounding): Fold {
  check(dtype, op, ranks, rounding);
  const float = dtypeInfo[dtype].kind === "float";
  const scales = typeof op === "object" || (op === "avg" && float);
  const fused = scales && float && dtypeInfo[dtype].bytes > 1 && rounding === "fused";
  const variant = 2 * (op === "avg" ? ranks : 0) + (fused ? 1 : 0);
  const variants = variantsOf(dtype, op);
  let fold = variants.get(variant);
  if (fold === undefined) {
    const scalar = typeof op === "object" ? op.preMul : 1;
    const make = operators[dtype][typeof op === "object" ? "preMul" : op];
    const divisor = op === "avg" && !float ? ranks : 1;
    const terms = { scalar: scales ? factorOf(dtype, op, ranks) : 1, fused, divisor };
    fold = Object.freeze({
      dtype,
      op,
      scales,
      terms: Object.freeze({ ...terms, accumulator: "element" as const }),
      ...make({ ranks, rounding, scalar }),
    });
    variants.set(variant, fold);
  }
  return fold;
}

function check(dtype: DType, op: ReduceOp, ranks: number, rounding: ScalarRounding): void {
  const wrong = (field: string, found: string, needs: string): InvalidArgumentError =>
    invalid("foldFor", field, found, needs);
  if (!isDType(dtype)) throw wrong("dtype", textOf(dtype), `one of ${dtypes.join(", ")}`);
  const fault = reduceOpFault(op, dtype);
  if (fault !== undefined) throw wrong("op", fault, reduceOpChoices);
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > maxRanks) {
    throw wrong("ranks", textOf(ranks), `an integer in 1..${maxRanks}`);
  }
  if (rounding !== "fused" && rounding !== "separate") {
    throw wrong("rounding", textOf(rounding), "fused or separate");
  }
}

function variantsOf(dtype: DType, op: ReduceOp): Variants {
  let known = folds.get(dtype);
  if (known === undefined) {
    known = new Map();
    folds.set(dtype, known);
  }
  const key = typeof op === "object" ? scalarKey(op.preMul) : op;
  let variants = known.get(key);
  if (variants === undefined) {
    if (known.size >= maxOperators) known.clear();
    variants = new Map();
    known.set(key, variants);
  }
  return variants;
}

/** The factor of a contribution, rounded to the dtype. */
function factorOf(dtype: DType, op: ReduceOp, ranks: number): number | bigint {
  const scalar = typeof op === "object" ? op.preMul : 1;
  if (!isFloat(dtype)) return BigInt(scalar);
  return op === "avg" ? averageScalar(dtype, ranks) : roundScalar(dtype, Number(scalar));
}

function isFloat(dtype: DType): dtype is FloatDType {
  return dtypeInfo[dtype].kind === "float";
}

/** A Map treats -0 and +0 as one key, but they are different factors. */
function scalarKey(scalar: number | bigint): string | number | bigint {
  return Object.is(scalar, -0) ? "-0" : scalar;
}
