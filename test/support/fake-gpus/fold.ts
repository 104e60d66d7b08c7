/** The arithmetic of the fake NCCL: one fold in the order of ranks. Its bits are no claim about NCCL's order. */

import {
  bitsToNumber,
  foldFor,
  lanesOf,
  lanesPerElement,
} from "../../../src/algorithms/arithmetic/index.ts";
import { type DType, dtypeInfo, type ReduceOp } from "../../../src/api/index.ts";

/** The fold of one rank's contribution. */
export interface Contribution {
  /** Equal on all ranks, also where scalars differ. */
  readonly name: string;
  readonly op: ReduceOp;
}

/** The built-in operators by NCCL's numbers. */
export const builtIn: readonly Contribution[] = (["sum", "prod", "max", "min", "avg"] as const).map(
  (op) => ({ name: op, op }),
);

/** The operator that multiplies by a scalar, given as the bytes of one element. */
export function preMultiplied(dtype: DType, bytes: Uint8Array): Contribution {
  const { view, bits } = dtypeInfo[dtype];
  const value = view(bytes.slice().buffer, 0, 1)[0] as number | bigint;
  const preMul = bits
    ? bitsToNumber(dtype as Parameters<typeof bitsToNumber>[0], Number(value))
    : value;
  return { name: "preMul", op: { preMul } };
}

/** Folds whole buffers. */
export function fold(
  dtype: DType,
  contributions: readonly Uint8Array[],
  ops: readonly Contribution[],
): Uint8Array {
  const [first] = contributions as readonly [Uint8Array];
  const folds = ops.map(({ op }) => foldFor(dtype, op, contributions.length, "separate"));
  // One rank alone: NCCL copies unless the operator multiplies.
  if (folds.length === 1 && folds[0]?.scales === false) return first;
  const result = new Uint8Array(first.length);
  const acc = lanesOf(dtype, result.buffer, 0, result.length);
  const count = acc.length / lanesPerElement(dtype);
  contributions.forEach((bytes, rank) => {
    const source = lanesOf(dtype, bytes.buffer, 0, bytes.length);
    if (rank === 0) folds[rank]?.begin(acc, 0, source, 0, count);
    else folds[rank]?.addContribution(acc, 0, source, 0, count);
  });
  folds[0]?.finish(acc, 0, count);
  return result;
}
