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

// The counts of an all-to-allv without receive counts: an all-to-all of one int64 a pair.

/** Runs `after` now or when the promise is done: synchronous backends stay synchronous. */
export function andThen<A, B>(
  value: A | Promise<A>,
  after: (value: A) => B | Promise<B>,
): B | Promise<B> {
  return value instanceof Promise ? value.then(after) : after(value);
}

/** Fills in `recvCounts` and `recvOffsets` of every call of the set. */
export function exchangeCounts(session: Session, set: CallSet): void | Promise<void> {
  const size = set.comm.ranks.length;
  // Buffers without contents only take the exchange's time: their backend has all ranks here, and so their counts.
  const phantom = session.info.capabilities.phantom === true;
  const calls = set.calls.map((call): RankCall => {
    const worldRank = set.comm.ranks[call.rank] as number;
    const send = exchangeBuffer(session, worldRank, size);
    if (!phantom) send.copyFrom(BigInt64Array.from(call.sendCounts ?? [], BigInt));
    const recv = exchangeBuffer(session, worldRank, size);
    return rankCall(
      "allToAll",
      call.rank,
      { dtype: "int64", count: 1, send, recv },
      call.postedAtPs,
    );
  });
  const exchange: CallSet = { comm: set.comm, number: set.number, collective: "allToAll", calls };
  return andThen(session.execute(exchange), () =>
    phantom ? fillCounts(set, calls) : readCounts(set, calls),
  );
}

/** Gives every rank the counts of the others, without any memory. */
function fillCounts(set: CallSet, calls: readonly RankCall[]): void {
  set.calls.forEach((call, index) => {
    setCounts(
      call,
      calls[index] as RankCall,
      set.calls.map(({ sendCounts = [] }) => sendCounts[call.rank] ?? 0),
    );
  });
}

/** The counts of a rank when the exchange is done. */
function setCounts(call: RankCall, answered: RankCall, recvCounts: readonly number[]): void {
  call.recvCounts = recvCounts;
  call.recvOffsets = runningSum(recvCounts);
  call.finishedAtPs = answered.finishedAtPs;
  answered.send?.dispose();
  answered.recv?.dispose();
}

function readCounts(set: CallSet, calls: readonly RankCall[]): void | Promise<void> {
  const waiting: Promise<void>[] = [];
  set.calls.forEach((call, index) => {
    const answered = calls[index] as RankCall;
    const counts = new BigInt64Array(set.comm.ranks.length);
    const bytes = new Uint8Array(counts.buffer);
    const read = answered.recv && memoryOf(answered.recv).read(0, bytes);
    const take = (): void => setCounts(call, answered, Array.from(counts, Number));
    if (read instanceof Promise) waiting.push(read.then(take));
    else take();
  });
  if (waiting.length > 0) return Promise.all(waiting).then(() => undefined);
}

/** Memory of a rank through which int64 are exchanged. */
function exchangeBuffer(session: Session, worldRank: number, size: number): DeviceBuffer<"int64"> {
  const memory = session.device(worldRank).allocate(8 * size, false);
  return bufferOver("int64", size, memory, { rank: worldRank, session });
}

// The colors and keys of a split: an all-gather of three int64 a rank, `joins`, `color` and `key`.

/** int64 per rank. */
const width = 3;

/** The color and key of every rank, by rank. */
export function gatherSplitRequests(
  session: Session,
  set: CallSet,
): SplitRequest[] | Promise<SplitRequest[]> {
  const own = splitRequests(set);
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
  return andThen(session.execute(gather), () => readSplitRequests(calls, size));
}

async function readSplitRequests(
  calls: readonly RankCall[],
  size: number,
): Promise<SplitRequest[]> {
  const received = new BigInt64Array(width * size);
  const recv = calls[0]?.recv;
  if (recv !== undefined) await memoryOf(recv).read(0, new Uint8Array(received.buffer));
  for (const { send, recv } of calls) {
    send?.dispose();
    recv?.dispose();
  }
  return Array.from({ length: size }, (_, rank) => {
    const [joins, color, key] = received.subarray(width * rank, width * (rank + 1));
    return { rank, color: joins === 1n ? Number(color) : undefined, key: Number(key) };
  });
}
