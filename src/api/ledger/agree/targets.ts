/**
 * What calls write, as a whole: no memory of two ranks.
 *
 * In one process a TypedArray made outside of the program is the same memory on every rank. Used as `recv` there, ranks
 * would overwrite each other's results in silence.
 */
import type { CallSet, CommInfo, RankCall } from "../../backend.ts";
import { type DeviceBuffer, overlapBytes } from "../../buffer.ts";
import { InvalidArgumentError } from "../../errors.ts";
import type { Batch, Meeting } from "../calls/batch.ts";
import type { Posting } from "../calls/posting.ts";
import { UnservedError } from "../calls/unserved.ts";

/** Refuses a call in which a rank writes memory that another rank reads or writes. */
export function assertTargetsApart({ calls, comm, number }: CallSet): void {
  if (!calls.some(writesHostMemory)) return;
  for (const writer of calls) {
    const other = writesHostMemory(writer) && calls.find((call) => collides(writer, call));
    if (!other) continue;
    throw new UnservedError((rank) => sharedTarget(comm, writer, other, rank, number));
  }
}

/**
 * The error of a message that would arrive in memory which another rank reads or writes in the same exchange: in a call
 * at the head of its line, whether or not that part of the call is done. `undefined` when the memory is the receiver's own.
 */
export function sharedTransfer(
  comm: CommInfo,
  { recv: { call: writer } }: Meeting,
  batches: readonly (Batch | undefined)[],
): ((posting: Posting) => InvalidArgumentError) | undefined {
  if (!writesHostMemory(writer)) return undefined;
  for (const batch of batches) {
    const other = batch?.transfers.find(({ call }) => collides(writer, call))?.call;
    if (other === undefined) continue;
    return ({ op }) => sharedTarget(comm, writer, other, op.rank, op.call);
  }
  return undefined;
}

function writesHostMemory({ recv }: RankCall): boolean {
  return recv?.allocation.memory.borrowed === true;
}

function collides(writer: RankCall, { rank, send, recv }: RankCall): boolean {
  return rank !== writer.rank && (meets(writer.recv, send) || meets(writer.recv, recv));
}

function meets(written: DeviceBuffer | undefined, other: DeviceBuffer | undefined): boolean {
  return written !== undefined && other !== undefined && overlapBytes(written, other) > 0;
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
