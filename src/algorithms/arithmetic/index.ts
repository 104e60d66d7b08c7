/** Arithmetic of every dtype and operator: the only owner of all executors' rounding rules. */
export {
  canonicalNaN,
  type FloatDType,
  type Fold,
  type FoldTerms,
  type Lanes,
  lanesOf,
  lanesPerElement,
  type ScalarRounding,
} from "./fold.ts";
export { foldFor } from "./fold-for.ts";
export { averageScalar, roundScalar, scalarBits } from "./scalar.ts";
export { bitsToNumbers, numbersToBits } from "./small-arrays.ts";
export { bitsToNumber, numberToBits, type SmallFloat } from "./small-float.ts";
