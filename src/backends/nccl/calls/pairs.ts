/** Pairs of ranks: between which of them a message goes, and a collective call sends, as its NCCL calls say. */
import type { HalfTransfer, RankCall } from "../../../api/index.ts";
import { type Issuing, type Part, stepsOf } from "./issue.ts";

/** A sender and who receives from it. */
export type Pair = readonly [from: number, to: number];

/** Who sends and who receives a message. */
export function pairOf({ direction, peer, call }: HalfTransfer): Pair {
  return direction === "send" ? [call.rank, peer] : [peer, call.rank];
}

/** A number for a pair of ranks, of so many. */
export function numberOf(size: number, [from, to]: Pair): number {
  return from * size + to;
}

/** Collectives that are sends and receives, whoever issues them. */
const inPairs = new Set<RankCall["collective"]>([
  ...(["gather", "scatter", "allGatherv", "allToAll", "allToAllv"] as const),
]);

/** Whether a call sends both ways between all ranks, as each of them can tell. */
export function connectsAll({ collective, count, recvCounts }: RankCall): boolean {
  if (collective === "allToAllv") return recvCounts === undefined;
  return collective === "allToAll" && count > 0;
}

/**
 * The pairs of a rank's call that it is one of; the counts of an all-to-allv are known by then. None for collectives that NCCL
 * has itself, beside the all-to-all.
 */
export function pairsOf(call: RankCall, size: number): Pair[] {
  if (!inPairs.has(call.collective)) return [];
  const pairs: Pair[] = [];
  const { rank } = call;
  const nothing = (): void => undefined;
  const issuing: Issuing = {
    hasAllToAll: false,
    allToAll: nothing,
    allReduce: nothing,
    reduce: nothing,
    broadcast: nothing,
    allGather: nothing,
    reduceScatter: nothing,
    send: (_buffer, _count, _dtype, peer) => void pairs.push([rank, peer]),
    recv: (_buffer, _count, _dtype, peer) => void pairs.push([peer, rank]),
  };
  const none = { send: 0n, recv: 0n, comm: 0n, stream: 0n, scratch: 0n, op: 0 };
  const part: Part = { ...none, call, size };
  for (const step of stepsOf(call, size)) step(issuing, part);
  return pairs.filter(([from, to]) => from !== to);
}
