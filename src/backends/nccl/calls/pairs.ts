/** Pairs of sender and receiver: of a message, and of the messages within a collective call, as its NCCL calls have them. */
import type { RankCall, RemoteTransfer } from "../../../api/index.ts";
import { type Issuing, type Part, stepsOf } from "./issue.ts";

/** A sender and its receiver. */
type Pair = readonly [from: number, to: number];

/** The sender and the receiver of a message. */
export function pairOf({ direction, peer, call }: RemoteTransfer): Pair {
  return direction === "send" ? [call.rank, peer] : [peer, call.rank];
}

/** A number for a pair of ranks, of so many. */
export function numberOf(size: number, [from, to]: Pair): number {
  return from * size + to;
}

/** True when a rank is one of a pair with that number. */
export function isOfPair(size: number, pair: number, rank: number): boolean {
  return Math.floor(pair / size) === rank || pair % size === rank;
}

/** Collectives that are sends and receives, on every backend. */
const inPairs = new Set<RankCall["collective"]>([
  ...(["gather", "scatter", "allGatherv", "allToAll", "allToAllv"] as const),
]);

/** True when a call sends both ways between all ranks, by the arguments of each rank. */
export function connectsAll({ collective, count, recvCounts }: RankCall): boolean {
  if (collective === "allToAllv") return recvCounts === undefined;
  return collective === "allToAll" && count > 0;
}

/**
 * The other ranks that a rank's call sends to or receives from; the counts of an all-to-allv are known by then. None for
 * collectives that NCCL has itself, beside the all-to-all.
 */
export function peersOf(call: RankCall, size: number): Set<number> {
  const peers = new Set<number>();
  if (!inPairs.has(call.collective)) return peers;
  const nothing = (): void => undefined;
  const meet = (_buffer: bigint, _count: number, _dtype: number, peer: number): void => {
    if (peer !== call.rank) peers.add(peer);
  };
  const issuing: Issuing = {
    hasAllToAll: false,
    allToAll: nothing,
    allReduce: nothing,
    reduce: nothing,
    broadcast: nothing,
    allGather: nothing,
    reduceScatter: nothing,
    send: meet,
    recv: meet,
  };
  const none = { send: 0n, recv: 0n, comm: 0n, stream: 0n, scratch: 0n, op: 0 };
  const part: Part = { ...none, call, size };
  for (const step of stepsOf(call, size)) step(issuing, part);
  return peers;
}
