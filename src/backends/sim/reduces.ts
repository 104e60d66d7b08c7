/**
 * A reduce-scatter of blocks of different lengths, as NCCL is made to do it: one reduce for each root, one after another.
 *
 * NCCL has no such call. Each reduce is a group of its own, because several in one group would share channels and be cut
 * otherwise; so a block has exactly the bits of `reduce` to its rank. NCCL drops calls of no elements.
 */
import type { CallSet, RankCall } from "../../api/index.ts";

/** The reduces of a complete reduce-scatter. */
export function reducesOf(set: CallSet): CallSet[] {
  const counts = set.calls[0]?.sendCounts ?? [];
  return counts.flatMap((count, root) => {
    if (count === 0) return [];
    return {
      ...set,
      collective: "reduce",
      calls: set.calls.map((call) => reduceOf(call, root, count)),
    };
  });
}

/** Has `predict` move the times of each reduce: a rank begins one when it is done with the one before it. */
export function inTurn(
  set: CallSet,
  parts: readonly CallSet[],
  predict: (part: CallSet, number: number) => void,
): void {
  parts.forEach((part, number) => {
    const hand = (from: readonly RankCall[], to: readonly RankCall[]): void => {
      from.forEach(({ finishedAtPs }, rank) => {
        (to[rank] as RankCall).finishedAtPs = finishedAtPs;
      });
    };
    hand(set.calls, part.calls);
    predict(part, number);
    hand(part.calls, set.calls);
  });
}

function reduceOf(call: RankCall, root: number, count: number): RankCall {
  const offset = call.sendOffsets?.[root] ?? 0;
  return {
    ...call,
    collective: "reduce",
    root,
    count,
    send: call.send?.subarray(offset, offset + count),
    recv: call.rank === root ? call.recv : undefined,
    sendCounts: undefined,
    sendOffsets: undefined,
  };
}
