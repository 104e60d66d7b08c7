/**
 * A reduce-scatter of blocks of different lengths, as NCCL is made to do it: one reduce for each root, one after another.
 *
 * NCCL has no such call. Each reduce is a group of its own, because several in one group would share channels and be cut
 * otherwise; so a block has exactly the bits of `reduce` to its rank. NCCL drops calls of no elements.
 */
import type { CallSet, RankCall } from "../../api/index.ts";

/** The reduces of a complete reduce-scatter. Each begins when its rank is done with the one before it. */
export function* reducesOf(set: CallSet): Generator<CallSet> {
  const counts = set.calls[0]?.sendCounts ?? [];
  for (const [root, count] of counts.entries()) {
    if (count === 0) continue;
    const calls = set.calls.map((call) => reduceOf(call, root, count));
    yield { ...set, collective: "reduce", calls };
    for (const [rank, { finishedAtPs }] of calls.entries()) {
      (set.calls[rank] as RankCall).finishedAtPs = finishedAtPs;
    }
  }
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
