/**
 * The first phase of an all-to-allv with unknown receive counts: every rank sends to every other the number of
 * elements that it will send, through the backend's own all-to-all of one int64 a pair.
 *
 * It is a whole call of its own that ends before the data moves, so that the two can never interleave.
 */
import type { CallSet, RankCall, Session } from "../../backend.ts";
import { type Allocation, DeviceBuffer } from "../../buffer.ts";
import { runningSum } from "../../collectives/blocks.ts";
import { rankCall } from "../../member/prepared.ts";

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
  const phantom = session.capabilities.phantom === true;
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
    phantom ? tellAll(set, calls) : readAll(set, calls),
  );
}

/** Gives every rank the counts of the others, without any memory. */
function tellAll(set: CallSet, calls: readonly RankCall[]): void {
  set.calls.forEach((call, index) => {
    finish(
      call,
      calls[index] as RankCall,
      set.calls.map(({ sendCounts = [] }) => sendCounts[call.rank] ?? 0),
    );
  });
}

/** The counts of a rank when the exchange is done. */
function finish(call: RankCall, answered: RankCall, recvCounts: readonly number[]): void {
  call.recvCounts = recvCounts;
  call.recvOffsets = runningSum(recvCounts);
  call.finishedAtPs = answered.finishedAtPs;
  answered.send?.dispose();
  answered.recv?.dispose();
}

function readAll(set: CallSet, calls: readonly RankCall[]): void | Promise<void> {
  const waiting: Promise<void>[] = [];
  set.calls.forEach((call, index) => {
    const answered = calls[index] as RankCall;
    const counts = new BigInt64Array(set.comm.ranks.length);
    const bytes = new Uint8Array(counts.buffer);
    const read = answered.recv?.allocation.memory.read(0, bytes);
    const take = (): void => finish(call, answered, Array.from(counts, Number));
    if (read instanceof Promise) waiting.push(read.then(take));
    else take();
  });
  if (waiting.length > 0) return Promise.all(waiting).then(() => undefined);
}

/** Memory of a rank through which int64 are exchanged. */
export function exchangeBuffer(
  session: Session,
  worldRank: number,
  size: number,
): DeviceBuffer<"int64"> {
  const allocation: Allocation = {
    memory: session.allocate(worldRank, 8 * size),
    rank: worldRank,
    session,
    disposed: false,
    lastUse: undefined,
  };
  return new DeviceBuffer("int64", size, allocation);
}
