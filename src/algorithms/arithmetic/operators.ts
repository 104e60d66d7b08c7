/**
 * The arithmetic of each dtype and operator: the complete table, checked by the compiler.
 *
 * Averages of floats are scaled sums; averages of integers are wrapped sums, divided once at the
 * end.
 */
import type { DType } from "../../api/dtype.ts";
import type { NamedReduceOp } from "../../api/reduce-op.ts";
import { byteExtreme, byteProd, byteScaledSum, byteSum } from "./bytes.ts";
import { type Float8DType, float8Fold, float8ScaledSum } from "./float8.ts";
import { float32Max, float32Min, float32Prod, float32Sum } from "./float32.ts";
import { float32ScaledSum } from "./float32-scaled.ts";
import { float64Max, float64Min, float64Prod, float64Sum } from "./float64.ts";
import { float64ScaledSum } from "./float64-scaled.ts";
import type { FoldMethods, ScalarRounding } from "./fold.ts";
import { type HalfDType, halfExtreme, halfProd, halfScaledSum, halfSum } from "./half.ts";
import { averageScalar, roundScalar } from "./scalar.ts";
import { word32Extreme, word32Prod, word32ScaledSum, word32Sum } from "./words32.ts";
import { word64Extreme, word64Prod, word64ScaledSum, word64Sum } from "./words64.ts";

/** Parameters of an operator beside the dtype. */
export interface OperatorContext {
  readonly ranks: number;
  readonly rounding: ScalarRounding;
  /** The scalar of a pre-multiplied sum as given; 1 for every other operator. */
  readonly scalar: number | bigint;
}

/** An operator's name in the table. */
export type OperatorName = NamedReduceOp | "preMul";

/** The operators of one dtype. */
export type Operators = {
  readonly [O in OperatorName]: (context: OperatorContext) => FoldMethods;
};

/** Every operator of every dtype. */
export const operators: { readonly [D in DType]: Operators } = {
  int8: byteOperators(true),
  uint8: byteOperators(false),
  int32: word32Operators(true),
  uint32: word32Operators(false),
  int64: word64Operators(true),
  uint64: word64Operators(false),
  float16: halfOperators("float16"),
  bfloat16: halfOperators("bfloat16"),
  float32: {
    sum: float32Sum,
    prod: float32Prod,
    min: float32Min,
    max: float32Max,
    avg: ({ ranks, rounding }) =>
      float32ScaledSum(averageScalar("float32", ranks), rounding === "fused"),
    preMul: ({ scalar, rounding }) =>
      float32ScaledSum(roundScalar("float32", Number(scalar)), rounding === "fused"),
  },
  float64: {
    sum: float64Sum,
    prod: float64Prod,
    min: float64Min,
    max: float64Max,
    avg: ({ ranks, rounding }) =>
      float64ScaledSum(averageScalar("float64", ranks), rounding === "fused"),
    preMul: ({ scalar, rounding }) => float64ScaledSum(Number(scalar), rounding === "fused"),
  },
  float8e4m3: float8Operators("float8e4m3"),
  float8e5m2: float8Operators("float8e5m2"),
};

function byteOperators(signed: boolean): Operators {
  return {
    sum: () => byteSum(),
    prod: byteProd,
    min: () => byteExtreme("min", signed),
    max: () => byteExtreme("max", signed),
    avg: ({ ranks }) => byteSum({ ranks, signed }),
    preMul: ({ scalar }) => byteScaledSum(Number(scalar)),
  };
}

function word32Operators(signed: boolean): Operators {
  return {
    sum: () => word32Sum(),
    prod: word32Prod,
    min: () => word32Extreme("min", signed),
    max: () => word32Extreme("max", signed),
    avg: ({ ranks }) => word32Sum({ ranks, signed }),
    preMul: ({ scalar }) => word32ScaledSum(Number(scalar)),
  };
}

function word64Operators(signed: boolean): Operators {
  return {
    sum: () => word64Sum(),
    prod: word64Prod,
    min: () => word64Extreme("min", signed),
    max: () => word64Extreme("max", signed),
    avg: ({ ranks }) => word64Sum({ ranks, signed }),
    preMul: ({ scalar }) => word64ScaledSum(BigInt(scalar)),
  };
}

function halfOperators(dtype: HalfDType): Operators {
  return {
    sum: () => halfSum(dtype),
    prod: () => halfProd(dtype),
    min: () => halfExtreme(dtype, "min"),
    max: () => halfExtreme(dtype, "max"),
    avg: ({ ranks, rounding }) =>
      halfScaledSum(dtype, averageScalar(dtype, ranks), rounding === "fused"),
    preMul: ({ scalar, rounding }) =>
      halfScaledSum(dtype, roundScalar(dtype, Number(scalar)), rounding === "fused"),
  };
}

function float8Operators(dtype: Float8DType): Operators {
  return {
    sum: () => float8Fold(dtype, "sum"),
    prod: () => float8Fold(dtype, "prod"),
    min: () => float8Fold(dtype, "min"),
    max: () => float8Fold(dtype, "max"),
    avg: ({ ranks }) => float8ScaledSum(dtype, averageScalar(dtype, ranks)),
    preMul: ({ scalar }) => float8ScaledSum(dtype, roundScalar(dtype, Number(scalar))),
  };
}
