/**
 * Calls that NCCL refuses on a communicator of one rank, and their replacement.
 *
 * For one rank, NCCL has no kernels of multiplying float8 operators: averages and pre-multiplied sums. An average over one rank
 * equals its contribution bit for bit and becomes a copy in stream order.
 */
import type { RankCall } from "../../../api/backend-entry.ts";
import { bytesOf, type DType, type Question } from "../../../api/index.ts";
import type { LocalRank } from "./local-rank.ts";

/** Reason why a call of one rank is not supported; `undefined` if supported. */
export function singleRankRefusal({ dtype, op }: Question, size: number): string | undefined {
  if (size !== 1 || !isFloat8(dtype) || typeof op !== "object") return undefined;
  return `NCCL has no pre-multiplied sum of ${dtype} over one rank`;
}

/** True if a copy replaces a call that NCCL would refuse. */
export function isSingleRankCopy({ dtype, op }: RankCall, size: number): boolean {
  return size === 1 && op === "avg" && isFloat8(dtype);
}

/** Copies the only rank's contribution to its result. */
export function copySingleRank(call: RankCall, { device }: LocalRank): void {
  const { send, recv, count } = call;
  if (send === undefined || recv === undefined || send.ptr === recv.ptr || count === 0) return;
  device.use().copy(recv.ptr, send.ptr, count * bytesOf(send.dtype), device.stream);
}

function isFloat8(dtype: DType | undefined): boolean {
  return dtype === "float8e4m3" || dtype === "float8e5m2";
}
