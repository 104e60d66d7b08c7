/**
 * The colors and keys of every rank of a split. Ranks of several processes exchange them through the backend's own
 * all-gather of three int64 a rank: whether it joins, its color, its key.
 */
import type { CallSet, RankCall, Session } from "../../backend.ts";
import { rankCall } from "../../member/prepared.ts";
import { type SplitWish, splitWishes } from "../../member/split.ts";
import { andThen, exchangeBuffer } from "./counts-exchange.ts";

/** int64 per rank. */
const width = 3;

/** The wishes of all ranks, by rank. */
export function allWishes(session: Session, set: CallSet): SplitWish[] | Promise<SplitWish[]> {
  const own = splitWishes(set);
  const size = set.comm.ranks.length;
  if (own.length === size) return own;
  const calls = own.map(({ rank, color, key }): RankCall => {
    const worldRank = set.comm.ranks[rank] as number;
    const send = exchangeBuffer(session, worldRank, width);
    const recv = exchangeBuffer(session, worldRank, width * size);
    const joins = color === undefined ? 0n : 1n;
    send.copyFrom(BigInt64Array.of(joins, BigInt(color ?? 0), BigInt(key)));
    return rankCall("allGather", rank, { dtype: "int64", count: width, send, recv }, 0);
  });
  const gather: CallSet = { comm: set.comm, number: set.number, collective: "allGather", calls };
  return andThen(session.execute(gather), () => readWishes(calls, size));
}

async function readWishes(calls: readonly RankCall[], size: number): Promise<SplitWish[]> {
  const told = new BigInt64Array(width * size);
  await calls[0]?.recv?.allocation.memory.read(0, new Uint8Array(told.buffer));
  for (const { send, recv } of calls) {
    send?.dispose();
    recv?.dispose();
  }
  return Array.from({ length: size }, (_, rank) => {
    const [joins, color, key] = told.subarray(width * rank, width * (rank + 1));
    return { rank, color: joins === 1n ? Number(color) : undefined, key: Number(key) };
  });
}
