/**
 * Which results of the low-latency symmetric kernel NCCL does not define.
 *
 * From 2.27.3 to 2.29.7 that kernel loads 1- and 2-byte elements wrongly from addresses that are no multiple of 4: the
 * last bytes of every 8 come from a register that was never filled. What they hold is an accident, so it is marked and
 * not imitated.
 */
import { bytesOf, type DType } from "../../api/dtype.ts";
import type { SymmetricCollective } from "./symmetric-choice.ts";

/** Blocks of `send` that are loaded from such an address; windows themselves are aligned. */
export function undefinedBlocks(
  collective: SymmetricCollective,
  ranks: number,
  dtype: DType,
  count: number,
  sendOffset: number,
): number[] {
  const elementBytes = bytesOf(dtype);
  if (elementBytes >= 4 || count === 0) return [];
  const blocks = collective === "allReduce" ? 1 : ranks;
  return Array.from({ length: blocks }, (_, block) => block).filter(
    (block) => (sendOffset + block * count * elementBytes) % 4 !== 0,
  );
}
