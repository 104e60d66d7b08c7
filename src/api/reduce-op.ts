/**
 * The reduce operators, and which scalars a pre-multiplied sum accepts.
 *
 * `algorithms/arithmetic` defines the arithmetic of an operator for a dtype, hop by hop. This file has only the names, so that
 * a wrong one is refused first.
 */
import { type DType, dtypeInfo } from "./dtype.ts";
import { textOf } from "./option-kinds.ts";

/** Operators that have a plain name. */
export type NamedReduceOp = "sum" | "prod" | "min" | "max" | "avg";

/** A sum of contributions that are each multiplied by a scalar first; the scalar is rounded to the dtype. */
export interface PreMul {
  readonly preMul: number | bigint;
}

/** The operation of a reduction on two elements. */
export type ReduceOp = NamedReduceOp | PreMul;

/** The named operators, in NCCL's order. */
export const namedReduceOps: readonly NamedReduceOp[] = ["sum", "prod", "max", "min", "avg"];

/** The legal operators, for the text of errors. */
export const reduceOpChoices = "sum, prod, min, max, avg or { preMul: scalar }";

/** The operator as one word, for tables and messages: `preMul(0.5)` for a pre-multiplied sum. */
export function reduceOpName(op: ReduceOp): string {
  return typeof op === "string" ? op : `preMul(${op.preMul})`;
}

/** Why `op` is no legal operator for `dtype`; `undefined` when it is. */
export function reduceOpFault(op: unknown, dtype: DType): string | undefined {
  if ((namedReduceOps as readonly unknown[]).includes(op)) return undefined;
  if (typeof op !== "object" || op === null || !("preMul" in op)) {
    return `${textOf(op)} is no operator`;
  }
  return scalarFault((op as { preMul: unknown }).preMul, dtype);
}

function scalarFault(scalar: unknown, dtype: DType): string | undefined {
  const { kind, bytes } = dtypeInfo[dtype];
  if (typeof scalar !== "number" && typeof scalar !== "bigint") {
    return `preMul is ${textOf(scalar)}, not a number or bigint`;
  }
  if (kind === "float") {
    return typeof scalar === "bigint"
      ? `preMul is a bigint, but ${dtype} takes a number`
      : undefined;
  }
  if (typeof scalar === "number" && !Number.isSafeInteger(scalar)) {
    return `preMul is ${scalar}, but ${dtype} takes an integer (a bigint beyond 2^53)`;
  }
  const value = BigInt(scalar);
  const bits = BigInt(8 * bytes);
  const least = kind === "signed" ? -(1n << (bits - 1n)) : 0n;
  const most = kind === "signed" ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n;
  if (value < least || value > most)
    return `preMul is ${value}, outside ${dtype} (${least}..${most})`;
  return undefined;
}
