/**
 * Arguments that ranks exchange before a call: the counts of an all-to-allv, and the colors and keys of a split. Then the receive
 * buffers of exchanged lengths, and the communicators of the split.
 *
 * Each exchange is a call of its own through the backend's own collectives, which ends before the data of the call moves.
 */
import type { CallSet, CommInfo, RankCall, RankDevice, Session } from "../backend.ts";
import { bufferOver, type DeviceBuffer } from "../buffer.ts";
import type { Communicator } from "../communicator.ts";
import { bytesOf } from "../dtype.ts";
import { numbersText, rankRows, ranksText } from "../error-text.ts";
import { CollectiveMismatchError } from "../errors.ts";
import { getOrCreate } from "../get-or-create.ts";
import { largest } from "../largest.ts";
import type { Memory } from "../memory.ts";
import { runningSum } from "../sums.ts";
import type { CommState } from "./comm-state.ts";
import { PerRankError, postedFacts } from "./failures.ts";
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
  readonly values: readonly number[];
}

/** Exchanges int64 with other processes: `count` of each rank with each other one. Gives those that each rank here receives. */
function exchange(
  session: Session,
  { comm, number }: CallSet,
  collective: "allToAll" | "allGather",
  count: number,
  outgoing: readonly Outgoing[],
): number[][] | Promise<number[][]> {
  const received = outgoing.map(() => new BigInt64Array(count * comm.ranks.length));
  const calls = outgoing.map(({ rank, values }, at): RankCall => {
    // Host memory, so that a session orders its copies with the communicator's calls, not with the rank's memory.
    const lent = (array: BigInt64Array): DeviceBuffer =>
      int64Buffer(session, comm, rank, array.length, (device) => device.borrow(array.buffer));
    const send = lent(BigInt64Array.from(values, BigInt));
    const recv = lent(received[at] as BigInt64Array);
    return rankCall(collective, rank, { dtype: "int64", count, send, recv }, 0);
  });
  return andThen(session.execute({ comm, number, collective, calls }), () =>
    received.map((values) => Array.from(values, Number)),
  );
}

/** A rank's buffer over memory that its device gives. */
function int64Buffer(
  session: Session,
  { ranks }: CommInfo,
  rank: number,
  length: number,
  memoryOf: (device: RankDevice) => Memory,
): DeviceBuffer {
  const worldRank = ranks[rank] as number;
  const memory = memoryOf(session.device(worldRank));
  return bufferOver("int64", length, memory, { rank: worldRank, session });
}

/** Fills in `recvCounts` and `recvOffsets` of every call of an all-to-allv: an all-to-all of one int64 a pair. */
export function exchangeCounts(session: Session, set: CallSet): void | Promise<void> {
  const { calls, comm } = set;
  if (calls.length === comm.ranks.length) return countsHere(session, set);
  const outgoing = calls.map(({ rank, sendCounts = [] }) => ({ rank, values: sendCounts }));
  return andThen(exchange(session, set, "allToAll", 1, outgoing), (counts) => {
    for (const [at, call] of calls.entries()) setReceiveCounts(call, counts[at] as number[]);
  });
}

/** Fills in the counts where all ranks are in this process: no data moves. Where time is virtual, the exchange takes its time. */
function countsHere(session: Session, set: CallSet): void | Promise<void> {
  const { calls } = set;
  for (const call of calls) {
    const ofRanks = calls.map(({ sendCounts = [] }) => sendCounts[call.rank] ?? 0);
    setReceiveCounts(call, ofRanks);
  }
  return session.scheduler.clock && passExchangeTime(session, set);
}

function setReceiveCounts(call: RankCall, counts: readonly number[]): void {
  call.recvCounts = counts;
  call.recvOffsets = runningSum(counts);
}

/** Runs the exchange of counts for its virtual time, on buffers that are not read. */
function passExchangeTime(
  session: Session,
  { comm, number, calls }: CallSet,
): void | Promise<void> {
  const collective = "allToAll";
  const size = comm.ranks.length;
  const exchanged = calls.map(({ rank, postedAtPs }): RankCall => {
    const unread = (): DeviceBuffer =>
      int64Buffer(session, comm, rank, size, (device) => device.allocate(8 * size, false));
    const [send, recv] = [unread(), unread()];
    return rankCall(collective, rank, { dtype: "int64", count: 1, send, recv }, postedAtPs);
  });
  return andThen(session.execute({ comm, number, collective, calls: exchanged }), () => {
    for (const [at, { send, recv, finishedAtPs }] of exchanged.entries()) {
      (calls[at] as RankCall).finishedAtPs = finishedAtPs;
      send?.dispose();
      recv?.dispose();
    }
  });
}

/** Gives every rank a receiving buffer once all counts are known, or refuses the set when one is too short. */
export function provideReceiveBuffers(session: Session, set: CallSet): void {
  const needed = set.calls.map(receivedLength);
  const short = set.calls.flatMap(({ recv, rank }, index) =>
    recv !== undefined && recv.length < (needed[index] as number) ? [rank] : [],
  );
  if (short.length > 0) throw tooShort(set, needed, short);
  for (const [index, call] of set.calls.entries()) {
    const { dtype } = call;
    if (call.recv !== undefined || dtype === undefined) continue;
    const rank = set.comm.ranks[call.rank] as number;
    const length = needed[index] as number;
    const memory = session.device(rank).allocate(length * bytesOf(dtype), false, set.comm);
    call.recv = bufferOver(dtype, length, memory, { rank, session });
  }
}

/** Elements that a receiving buffer needs: up to the end of its last block. */
function receivedLength({ recvCounts = [], recvOffsets = [] }: RankCall): number {
  const ends = recvCounts.map((count, rank) =>
    count === 0 ? 0 : (recvOffsets[rank] ?? 0) + count,
  );
  return largest(ends, 0);
}

function tooShort(set: CallSet, needed: readonly number[], ranks: readonly number[]): PerRankError {
  const values = set.calls.map(({ recv }, index) =>
    recv === undefined ? "allocated" : `${recv.length} of ${needed[index]} needed`,
  );
  const rows = values.map((value, at) => ({ rank: set.calls[at]?.rank ?? at, cells: [value] }));
  return new PerRankError(
    (posting) =>
      new CollectiveMismatchError(
        {
          headline: `call ${set.number} on "${set.comm.name}": ${ranksText(ranks)} cannot hold what is sent to them`,
          table: [["rank", "recv.length"], ...rankRows(rows, numbersText)],
          hint: "nothing was written; leave recv out to have it allocated at the length that arrives",
        },
        { ...postedFacts(set.comm, posting, set.collective), ranks, field: "recv.length", values },
      ),
  );
}

// Splits: the session makes several communicators of one, by color.

/** Creates the communicators of a complete split, in the session and for the ranks here. */
export function split(state: CommState, set: CallSet): void | Promise<void> {
  const { session, world, comm: parent } = state;
  const nth = ++state.splits;
  const ownStream = set.calls[0]?.split?.ownStream === true;
  return andThen(gatherRequests(session, set), (requests) => {
    const children = splitGroups(requests).map(({ color, ranks }) =>
      childInfo(parent, world.nextId++, childName(parent, color, nth), ranks, ownStream),
    );
    return andThen(session.split(set, children), () => {
      const here = children.filter(({ local }) => local.length > 0);
      const ends = new Map(here.flatMap((child) => [...world.openComm(child)]));
      for (const call of set.calls) joined.set(call, ends.get(parent.ranks[call.rank] as number));
    });
  });
}

const joined = new WeakMap<RankCall, Communicator | undefined>();

/** The communicator that a rank's split gave to it; `undefined` for a rank without a color. */
export function joinedComm(call: RankCall): Communicator | undefined {
  return joined.get(call);
}

/** The color and key of one rank of a communicator in a split. */
interface SplitRequest {
  readonly rank: number;
  /** `undefined` joins nothing. */
  readonly color: number | undefined;
  readonly key: number;
}

/** The color and key of every rank, by rank: an all-gather of three int64, `joins`, `color` and `key`. */
function gatherRequests(session: Session, set: CallSet): SplitRequest[] | Promise<SplitRequest[]> {
  const own = set.calls.map(({ rank, split }): SplitRequest => {
    return { rank, color: split?.color, key: split?.key ?? 0 };
  });
  if (own.length === set.comm.ranks.length) return own;
  const outgoing = own.map(({ rank, color, key }) => ({
    rank,
    values: [color === undefined ? 0 : 1, color ?? 0, key],
  }));
  return andThen(exchange(session, set, "allGather", 3, outgoing), ([first = []]) =>
    set.comm.ranks.map((_, rank) => {
      const [joins, color, key = 0] = first.slice(3 * rank, 3 * rank + 3);
      return { rank, color: joins === 1 ? color : undefined, key };
    }),
  );
}

/** The communicators that a split makes, by ascending color; members by key, then by rank. */
function splitGroups(requests: readonly SplitRequest[]): { color: number; ranks: number[] }[] {
  const groups = new Map<number, SplitRequest[]>();
  for (const request of requests) {
    if (request.color === undefined) continue;
    getOrCreate(groups, request.color, () => []).push(request);
  }
  return [...groups]
    .sort(([a], [b]) => a - b)
    .map(([color, members]) => ({
      color,
      ranks: members.sort((a, b) => a.key - b.key || a.rank - b.rank).map(({ rank }) => rank),
    }));
}

/**
 * The name of the child of the parent's `nth` split for a color, equal in all processes. All members of the parent count the
 * same splits: its own, and none of other communicators.
 */
function childName({ name }: CommInfo, color: number, nth: number): string {
  return nth === 1 ? `${name}/${color}` : `${name}/${color}#${nth}`;
}

/** The communicator of one group; its members are ranks of the parent. */
function childInfo(
  parent: CommInfo,
  id: number,
  name: string,
  members: readonly number[],
  ownStream: boolean,
): CommInfo {
  const isWhole = parent.local.length === parent.ranks.length;
  return {
    id,
    name,
    ranks: members.map((rank) => parent.ranks[rank] as number),
    local: members.flatMap((rank, child) =>
      isWhole || parent.local.includes(rank) ? [child] : [],
    ),
    ...(ownStream ? { ownStream } : {}),
  };
}
