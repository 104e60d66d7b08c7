/**
 * Calls that NCCL refuses on a communicator of one rank, and their replacement.
 *
 * It has no kernel there for float8 operators that multiply: averages and pre-multiplied sums. An average over one rank
 * is the contribution itself, bit for bit, so that one is a copy in stream order.
 */
import { bytesOf, type DType, type Question, type RankCall } from "../../../api/index.ts";
import type { LocalRank } from "./local-rank.ts";

/** Why a call of one rank cannot be made; `undefined` when it can. */
export function singleRankRefusal({ dtype, op }: Question, size: number): string | undefined {
  if (size !== 1 || !isFloat8(dtype) || typeof op !== "object") return undefined;
  return `NCCL has no pre-multiplied sum of ${dtype} over one rank`;
}

/** True when a call is done as a copy because NCCL would refuse it. */
export function isSingleRankCopy({ dtype, op }: RankCall, size: number): boolean {
  return size === 1 && op === "avg" && isFloat8(dtype);
}

/** Copies the contribution of the only rank to where its result belongs. */
export function copySingleRank(call: RankCall, { device }: LocalRank): void {
  const { send, recv, count } = call;
  if (send === undefined || recv === undefined || send.ptr === recv.ptr || count === 0) return;
  device.use().copy(recv.ptr, send.ptr, count * bytesOf(send.dtype), device.stream);
}

function isFloat8(dtype: DType | undefined): boolean {
  return dtype === "float8e4m3" || dtype === "float8e5m2";
}
