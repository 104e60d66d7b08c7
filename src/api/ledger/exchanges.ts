/**
 * Arguments that ranks exchange before a call: the counts of an all-to-allv, and the colors and keys of a split.
 *
 * Each exchange is a call of its own through the backend's own collectives, which ends before the data of the call moves.
 */
import type { CallSet, RankCall, Session } from "../backend.ts";
import { bufferOver, type DeviceBuffer, memoryOf } from "../buffer.ts";
import { runningSum } from "../collectives/blocks.ts";
import { type SplitRequest, splitRequests } from "../collectives/split.ts";
import { rankCall } from "./posting.ts";

/** Runs `after` now or when the promise is done: synchronous backends stay synchronous. */
export function andThen<A, B>(
  value: A | Promise<A>,
  after: (value: A) => B | Promise<B>,
): B | Promise<B> {
  return value instanceof Promise ? value.then(after) : after(value);
}

/** The int64 that a rank sends. */
interface Outgoing {
  readonly rank: number;
  readonly values: readonly (number | bigint)[];
  readonly postedAtPs: number;
}

/** The int64 that a rank has received; none from buffers without contents. */
interface Incoming {
  readonly values: readonly number[];
  readonly finishedAtPs: number;
}

/** Exchanges int64: `count` of each rank with each other one. */
function exchange(
  session: Session,
  { comm, number }: CallSet,
  collective: "allToAll" | "allGather",
  count: number,
  outgoing: readonly Outgoing[],
): Incoming[] | Promise<Incoming[]> {
  const { phantom = false } = session.info.capabilities;
  const calls = outgoing.map(({ rank, values, postedAtPs }): RankCall => {
    const worldRank = comm.ranks[rank] as number;
    const send = exchangeBuffer(session, worldRank, values.length);
    if (!phantom) send.copyFrom(BigInt64Array.from(values, BigInt));
    const recv = exchangeBuffer(session, worldRank, count * comm.ranks.length);
    return rankCall(collective, rank, { dtype: "int64", count, send, recv }, postedAtPs);
  });
  return andThen(session.execute({ comm, number, collective, calls }), () => {
    const read = calls.map((call) => receive(call, phantom));
    return read.some((each) => each instanceof Promise) ? Promise.all(read) : (read as Incoming[]);
  });
}

/** Memory of a rank through which int64 are exchanged. */
function exchangeBuffer(
  session: Session,
  worldRank: number,
  length: number,
): DeviceBuffer<"int64"> {
  const memory = session.device(worldRank).allocate(8 * length, false);
  return bufferOver("int64", length, memory, { rank: worldRank, session });
}

function receive(
  { send, recv, finishedAtPs }: RankCall,
  phantom: boolean,
): Incoming | Promise<Incoming> {
  const values = new BigInt64Array(phantom ? 0 : (recv?.length ?? 0));
  const bytes = new Uint8Array(values.buffer);
  return andThen(phantom || recv === undefined ? undefined : memoryOf(recv).read(0, bytes), () => {
    send?.dispose();
    recv?.dispose();
    return { values: Array.from(values, Number), finishedAtPs };
  });
}

/** Fills in `recvCounts` and `recvOffsets` of every call of an all-to-allv: an all-to-all of one int64 a pair. */
export function exchangeCounts(session: Session, set: CallSet): void | Promise<void> {
  const outgoing = set.calls.map(({ rank, sendCounts = [], postedAtPs }) => ({
    ...{ rank, values: sendCounts, postedAtPs },
  }));
  return andThen(exchange(session, set, "allToAll", 1, outgoing), (incoming) => {
    for (const [index, call] of set.calls.entries()) {
      const { values, finishedAtPs } = incoming[index] as Incoming;
      // Buffers without contents only take the exchange's time: their backend has all ranks here, and so their counts.
      const ofRanks = set.calls.map(({ sendCounts = [] }) => sendCounts[call.rank] ?? 0);
      call.recvCounts = values.length > 0 ? values : ofRanks;
      call.recvOffsets = runningSum(call.recvCounts);
      call.finishedAtPs = finishedAtPs;
    }
  });
}

/** The color and key of every rank, by rank: an all-gather of three int64, `joins`, `color` and `key`. */
export function gatherSplitRequests(
  session: Session,
  set: CallSet,
): SplitRequest[] | Promise<SplitRequest[]> {
  const own = splitRequests(set);
  if (own.length === set.comm.ranks.length) return own;
  const outgoing = own.map(({ rank, color, key }) => {
    const values = [color === undefined ? 0 : 1, color ?? 0, key];
    return { rank, values, postedAtPs: 0 };
  });
  return andThen(exchange(session, set, "allGather", 3, outgoing), ([first]) =>
    set.comm.ranks.map((_, rank) => {
      const [joins, color, key = 0] = first?.values.slice(3 * rank, 3 * rank + 3) ?? [];
      return { rank, color: joins === 1 ? color : undefined, key };
    }),
  );
}
