/**
 * In which order the papers fold, written down by hand, and what that gives for any bits.
 *
 * Ring (Patarasuk and Yuan 2009): the buffer is cut into n chunks that are as even as possible, longer ones first;
 * chunk c starts at rank c+1, goes once round, and ends at rank c; each hop multiplies and adds in one rounding where
 * there is a scalar. Linear: rank 0 takes everyone's buffer in rank order, and each comes as a partial, so every
 * product is rounded before it is added.
 */
import { bytesFromBits, isFloat } from "./element-bits.ts";
import { type OracleDType, type OracleOp, oracleFold } from "./rounding-oracle.ts";

/** Algorithms of an all-reduce whose order is written down here. */
export type OrderedAlgorithm = "ring" | "linear";

/** Ranks in the order in which they are folded, for every element. */
function foldOrders(
  algorithm: OrderedAlgorithm,
  ranks: number,
  count: number,
): readonly (readonly number[])[] {
  const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
  if (algorithm === "linear") return new Array<number[]>(count).fill(everyRank);
  const orders: number[][] = [];
  for (let chunk = 0; chunk < ranks; chunk++) {
    const longer = chunk < count % ranks;
    const length = (count - (count % ranks)) / ranks + (longer ? 1 : 0);
    const order: number[] = [];
    for (let hop = 1; hop <= ranks; hop++) order.push((chunk + hop) % ranks);
    for (let i = 0; i < length; i++) orders.push(order);
  }
  return orders;
}

/** Bytes of an all-reduce of arbitrary bits: `sent` by rank, folded in the paper's order, rounded at every hop. */
export function orderedReduce(
  algorithm: OrderedAlgorithm,
  dtype: OracleDType,
  op: OracleOp,
  sent: readonly (readonly bigint[])[],
): Uint8Array {
  const ranks = sent.length;
  const scaled = typeof op === "object" || (op === "avg" && isFloat(dtype));
  // One rank alone has nothing to fold: without a scalar its bytes stay, NaN payloads included.
  if (ranks === 1 && !scaled) return bytesFromBits(dtype, sent[0] ?? []);
  const rounding = algorithm === "ring" ? "fused" : "separate";
  const orders = foldOrders(algorithm, ranks, sent[0]?.length ?? 0);
  const result = orders.map((order, i) => {
    const contributions = order.map((rank) => sent[rank]?.[i] as bigint);
    return oracleFold({ dtype, op, ranks, rounding, contributions });
  });
  return bytesFromBits(dtype, result);
}
