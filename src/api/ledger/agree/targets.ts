/**
 * Outputs of a call as a whole: no memory of two ranks.
 *
 * In one process a TypedArray made outside of the program is the same memory on every rank. Used as `recv` there, ranks
 * would overwrite each other's results in silence.
 */
import type { CallSet, CommInfo, RankCall } from "../../backend.ts";
import { type DeviceBuffer, overlapBytes } from "../../buffer.ts";
import { InvalidArgumentError } from "../../errors.ts";
import type { Memory } from "../../memory.ts";
import { type MemoryUse, MemoryUses } from "../../memory-uses.ts";
import type { Batch, Meeting } from "../calls/batch.ts";
import type { Posting } from "../calls/posting.ts";
import { UnservedError } from "../calls/unserved.ts";

/** A call that writes the caller's own host memory. */
type HostWriter = RankCall & { readonly recv: DeviceBuffer };

/** Refuses a call in which a rank writes memory that another rank reads or writes. */
export function assertTargetsApart({ calls, comm, number }: CallSet): void {
  const writers = calls.filter(writesHostMemory);
  if (writers.length === 0) return;
  const uses = usesOf(calls);
  const writer = writers.find((call) => isShared(call, uses));
  const other = writer && calls.find((call) => collides(writer, call));
  if (writer === undefined || other === undefined) return;
  throw new UnservedError((rank) => sharedTarget(comm, writer, other, rank, number));
}

/**
 * Finds a message's error when it would arrive in memory which another rank reads or writes in the same exchange: in a call
 * at the head of its line, even if that part of the call is done. There is none when the memory is the receiver's own.
 */
export function sharedTargets(
  comm: CommInfo,
  meetings: readonly Meeting[],
  sharers: (memory: Memory) => readonly Batch[],
): (meeting: Meeting) => ((posting: Posting) => InvalidArgumentError) | undefined {
  const written = meetings.map(({ recv }) => recv.call).filter(writesHostMemory);
  const memories = new Set(written.map(({ recv }) => recv.allocation.memory));
  const batches = new Set([...memories].flatMap(sharers));
  if (batches.size === 0) return () => undefined;
  const inTurn = [...batches].sort((a, b) => a.rank - b.rank);
  const calls = inTurn.flatMap(({ transfers }) => transfers.map(({ call }) => call));
  const uses = usesOf(calls);
  return ({ recv: { call: writer } }) => {
    if (!writesHostMemory(writer) || !isShared(writer, uses)) return undefined;
    const other = calls.find((call) => collides(writer, call));
    if (other === undefined) return undefined;
    return ({ op }) => sharedTarget(comm, writer, other, op.rank, op.call);
  };
}

function usesOf(calls: readonly RankCall[]): MemoryUses {
  const uses: MemoryUse[] = [];
  for (const { rank, send, recv } of calls) {
    if (send !== undefined) uses.push({ buffer: send, user: rank });
    if (recv !== undefined) uses.push({ buffer: recv, user: rank });
  }
  return new MemoryUses(uses);
}

function isShared({ rank, recv }: HostWriter, uses: MemoryUses): boolean {
  return uses.isShared({ buffer: recv, user: rank });
}

function writesHostMemory(call: RankCall): call is HostWriter {
  return call.recv?.allocation.memory.borrowed === true;
}

function collides(writer: HostWriter, { rank, send, recv }: RankCall): boolean {
  return rank !== writer.rank && (meets(writer.recv, send) || meets(writer.recv, recv));
}

function meets(written: DeviceBuffer, other: DeviceBuffer | undefined): boolean {
  return other !== undefined && overlapBytes(written, other) > 0;
}

/** The error of call number `call` on `rank`. */
function sharedTarget(
  comm: CommInfo,
  { rank: writer, collective }: RankCall,
  other: RankCall,
  rank: number,
  call: number,
): InvalidArgumentError {
  const ranks = [writer, other.rank].sort((a, b) => a - b);
  return new InvalidArgumentError(
    {
      headline: `${collective}: recv: ranks ${ranks.join(" and ")} were given the same memory, needs memory of their own`,
      hint: "make the array inside the program, once per rank",
    },
    { rank, size: comm.ranks.length, comm: comm.name, collective, call, ranks, field: "recv" },
  );
}
