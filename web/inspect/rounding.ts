/** The rounding of a hop: the exact value beside the kept one, in units in the last place. */
import { bytesOf, type ReduceOp } from "twinccl";
import { averageScalar, type FloatDType, roundScalar } from "twinccl/algorithms";
import type { Cell } from "./cell.ts";
import { type Dyadic, dyadic, inUnits, minus, plus, times } from "./dyadic.ts";
import { floatFormats, unitOf } from "./float-format.ts";
import type { Hop } from "./hops.ts";

/** The rounding of a hop in words. */
export function roundingText(hop: Hop, op: ReduceOp, ranks: number): string {
  const { left, right, result } = hop;
  if (typeof result.cell.value === "bigint") return integerText(hop, op, ranks);
  const operands = [left, ...(right === undefined ? [] : [right])].map(({ cell }) => cell.value);
  const [a = 0, b] = operands as number[];
  const kept = result.cell.value;
  if (op === "min" || op === "max") {
    return operands.includes(kept) || Number.isNaN(kept) ? "exact" : "saturates";
  }
  if (Number.isNaN(kept)) return "NaN";
  if (![a, b ?? 0].every(Number.isFinite)) return Number.isFinite(kept) ? "saturates" : "exact";
  if (!Number.isFinite(kept)) return "overflows";
  return errorText(result.cell, exactly(hop, op, ranks, a, b));
}

/** The result of the hop without rounding. */
function exactly(hop: Hop, op: ReduceOp, ranks: number, a: number, b: number | undefined): Dyadic {
  const scalar = scalarOf(op, hop.result.cell, ranks);
  const first = dyadic(a);
  if (hop.kind === "finish") return first;
  if (b === undefined) return scalar === undefined ? first : times(first, scalar);
  const second = dyadic(b);
  if (op === "prod") return times(first, second);
  return plus(first, hop.isContribution && scalar !== undefined ? times(second, scalar) : second);
}

/** The factor of contributions. */
function scalarOf(op: ReduceOp, { dtype }: Cell, ranks: number): Dyadic | undefined {
  if (op === "avg") return dyadic(averageScalar(dtype as FloatDType, ranks));
  if (typeof op === "object") return dyadic(roundScalar(dtype as FloatDType, Number(op.preMul)));
  return undefined;
}

function errorText({ dtype, value }: Cell, exact: Dyadic): string {
  const format = floatFormats[dtype];
  if (format === undefined || typeof value === "bigint") return "";
  const error = minus(dyadic(value), exact);
  if (error.m === 0n) return "exact";
  const size = Math.abs(inUnits(error, unitOf(value, format)));
  // A product that is rounded before the sum loses more than half a unit too, of a sum that cancels it.
  if (size > 1.5 && Math.abs(value) === format.largest) return "saturates";
  const digits = size < 0.001 ? "under 0.001" : size < 1000 ? size.toFixed(3) : size.toPrecision(3);
  return `${error.m > 0n ? "up" : "down"} ${digits} ulp`;
}

function integerText({ kind, left, right, result }: Hop, op: ReduceOp, ranks: number): string {
  if (op === "min" || op === "max") return "exact";
  if (kind === "finish") return `÷ ${ranks}, toward zero`;
  const [a, b] = [BigInt(left.cell.value), BigInt(right?.cell.value ?? 0n)];
  const scalar = typeof op === "object" ? BigInt(op.preMul) : 1n;
  const exact = right === undefined ? a * scalar : op === "prod" ? a * b : a + b * scalar;
  if (exact === result.cell.value) return "exact";
  return `wraps modulo 2^${8 * bytesOf(result.cell.dtype)}`;
}
